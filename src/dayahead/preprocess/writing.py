"""Windows collected, their vocabularies grown and statistics fitted, their files written."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from dayahead.core.files import write_parquet
from dayahead.core.types import ID_TYPES
from dayahead.features.fit import fit_features
from dayahead.features.vocabulary import add_value_counts, empty_value_counts, vocabulary_of
from dayahead.preprocess.incremental import Earlier
from dayahead.preprocess.phases import Phases
from dayahead.preprocess.schema import write_merlin_schema
from dayahead.preprocess.tasks import Edges, Job, collect_window, write_window
from dayahead.preprocess.window_counts import Listing
from dayahead.windows.folder import STATISTICS, n_known, vocabulary_path
from dayahead.windows.metadata import (
    SessionRules,
    Statistics,
    read_statistics,
    write_statistics,
)


def write_windows(
    job: Job,
    listing: Listing,
    edges: Edges,
    spreads: Sequence[Path],
    phases: Phases,
    earlier: Earlier | None,
) -> dict[str, Path]:
    """Write everything but windows.json; return the census of every column, for the next run."""
    places = [place for place in listing.standing if place >= edges.n_written]
    paths = {edges.calendar.names[place]: phases.path("windows", place) for place in places}
    found = phases.run(
        "windows",
        collect_window,
        [(job, spreads, *task) for task in zip(places, paths.values(), strict=True)],
    )
    phases.clear("sessions")
    census = _grown(job, dict(zip(paths, found, strict=True)), earlier)
    vocabularies = {column: vocabulary_of(table) for column, table in census.items()}
    for column, table in vocabularies.items():
        write_parquet(vocabulary_path(job.output, column), table)
    statistics = _statistics(job, paths, listing.fit_windows, vocabularies, earlier)
    write_statistics(job.output / STATISTICS, statistics)
    write_merlin_schema(job.output / "schema.pbtxt", statistics, vocabularies)

    def held(window: str) -> dict[str, int]:
        return {column: n_known(table, window) for column, table in vocabularies.items()}

    phases.run(
        "features",
        write_window,
        [(job, name, path, statistics, held(name)) for name, path in paths.items()],
    )
    return {column: _noted(table, phases, column) for column, table in census.items()}


def _noted(census: pa.Table, phases: Phases, column: str) -> Path:
    path = phases.scratch / f"census-{column}.parquet"
    write_parquet(path, census)
    return path


def _grown(
    job: Job, found: Mapping[str, Mapping[str, pa.Table]], earlier: Earlier | None
) -> dict[str, pa.Table]:
    """Count the values that the new windows bring to what is known."""
    census = {}
    for column in job.categorical:
        feature = job.dataset.features.get(column)
        type_ = job.dataset.columns.item_id.type if feature is None else feature.type
        census[column] = add_value_counts(
            earlier.census[column] if earlier else empty_value_counts(ID_TYPES[type_]),
            [(name, tables[column]) for name, tables in found.items()],
            min_count=feature.min_count if feature else 1,
            looks_ahead=feature is not None and feature.fit == "look_ahead",
        )
    return census


def _statistics(
    job: Job,
    paths: Mapping[str, Path],
    fit_windows: int,
    vocabularies: Mapping[str, pa.Table],
    earlier: Earlier | None,
) -> Statistics:
    """statistics.json: all that a live session's events need to become model input."""
    if earlier is not None:
        return _carried_on(job, paths, vocabularies)
    sessions = job.dataset.sessions
    return Statistics(
        unit=job.window.unit,
        timezone=job.window.timezone,
        item_type=job.dataset.columns.item_id.type,
        sessions=SessionRules(
            repeats=sessions.repeats.rule,
            min_length=sessions.min_length,
            max_length=sessions.max_length,
            truncate=sessions.truncate,
            past_max_length=sessions.past_max_length,
        ),
        fitted_on=list(paths)[:fit_windows],
        features=fit_features(job.dataset.features, paths, fit_windows, vocabularies, job.device),
    )


def _carried_on(
    job: Job, paths: Mapping[str, Path], vocabularies: Mapping[str, pa.Table]
) -> Statistics:
    """Take the statistics as they are; only what each window is fitted to by itself is added."""
    statistics = read_statistics(job.output / STATISTICS)
    by_window = {
        name: feature
        for name, feature in job.dataset.features.items()
        if feature.fit == "look_ahead_window"
    }
    features = dict(statistics.features)
    for name, found in fit_features(by_window, paths, 0, vocabularies, job.device).items():
        known = features[name]
        features[name] = replace(known, windows={**(known.windows or {}), **(found.windows or {})})
    return replace(statistics, features=features)
