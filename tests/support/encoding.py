"""Statistics and vocabularies to encode with."""

from datetime import timedelta

import pyarrow as pa

from dayahead.features.vocabulary import (
    add_value_counts,
    count_values,
    empty_value_counts,
    vocabulary_of,
)
from dayahead.windows.metadata import FeatureStatistics, SessionRules, Statistics
from support.builders import events, instant


def _columns_of(name, kind):
    return [f"{name}_sin", f"{name}_cos"] if kind in ("hour", "weekday") else [name]


def statistics(features, *, timezone="UTC", item_type="int", repeats="keep", max_length=20):
    """Fitted statistics of these features."""
    rules = SessionRules(
        repeats=repeats, min_length=2, max_length=max_length, truncate="first", past_max_length=0
    )
    return Statistics(
        unit="day",
        timezone=timezone,
        item_type=item_type,
        sessions=rules,
        fitted_on=["2026-01-01"],
        features={
            name: FeatureStatistics(columns=_columns_of(name, entry["kind"]), **entry)
            for name, entry in features.items()
        },
    )


def vocabulary(column, values, type_, start="2026-01-01"):
    """A vocabulary that knows these values, the n-th since n days after `start`."""
    rows = [
        {column: value, "event_time": instant(start) + timedelta(days=n)}
        for n, value in enumerate(values)
    ]
    table = events(rows, item_type=type_)
    table = table.set_column(0, column, table[column].cast(type_))
    return vocabulary_of(
        add_value_counts(empty_value_counts(type_), [("2026-01-01", count_values(table, column))])
    )


ITEMS = vocabulary("item_id", [50, 60], pa.int64())
