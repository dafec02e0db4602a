"""Raw events to model input: the NVTabular workflow, fitted once and rebuilt wherever it is used.

`SessionEncoder` encodes live sessions with the same operators, so that they cannot differ.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from dayahead.core.columns import EVENT_TIME, ID_TYPES, ITEM_ID, TIMESTAMP, VALUE, IdType
from dayahead.dataset.features import FeatureConfig
from dayahead.features.arrays import Ints
from dayahead.features.chain import Chain
from dayahead.features.engine import (
    Clip,
    ColumnSchema,
    Dataset,
    FillMissing,
    Operator,
    Schema,
    Tags,
    Workflow,
)
from dayahead.features.input_types import input_types
from dayahead.features.operators import (
    LARGEST,
    CyclicTime,
    FixedScale,
    GaussRank,
    ItemAge,
    Log1p,
    LookUp,
    RelativeTo,
    Standardise,
)
from dayahead.features.vocabulary import KnownValues
from dayahead.windows.metadata import FeatureStatistics, NumberStatistics, Statistics

Vocabularies = Mapping[str, pa.Table]
"""Vocabulary tables by column: item_id and every categorical feature."""
Types = Mapping[str, pa.DataType]
"""Types of a workflow's input columns."""
AGE_SCALE = float(np.log1p(30))
"""Constant by which item age is divided, unless its scale is fitted: ages drift as a log grows."""


class NumberOperators:
    """The operators of one numeric feature, to be fitted or rebuilt from its statistics.

    `category` is the categorical feature of a relative_number, and its type.
    """

    def __init__(
        self, name: str, kind: str, scaling: str, category: tuple[str, IdType] | None
    ) -> None:
        self.name = name
        self.kind = kind
        self.relative = RelativeTo(name, *category) if category else None
        match scaling:
            case "standard":
                self.scaler = Standardise()
            case "gauss_rank":
                self.scaler = GaussRank()
            case _:
                self.scaler = FixedScale(AGE_SCALE if kind == "item_age" else 1.0)

    @classmethod
    def from_statistics(cls, name: str, statistics: Statistics) -> "NumberOperators":
        """Rebuild fitted operators; where each window has its own, those of the newest."""
        feature = statistics.features[name]
        fitted = feature.newest
        category = statistics.category_of(name)
        operators = cls(name, feature.kind, fitted.scaling, category)
        if relative := operators.relative:
            relative.known = KnownValues(pa.array(fitted.values, relative.type))
            relative.means = np.array(fitted.means, dtype=np.float64)
            relative.overall_mean = fitted.overall_mean or 0.0
            relative.fitted = True
        if fitted.scaling == "standard":
            operators.scaler.means, operators.scaler.stds = {name: fitted.mean}, {name: fitted.std}
        elif fitted.scaling == "gauss_rank":
            operators.scaler.knots, operators.scaler.n = np.array(fitted.knots), fitted.n
        operators.scaler.fitted = True
        return operators

    def chain(self, vocabulary: pa.Table) -> Chain:
        """From the raw column (of item_age: from the item's index) to float32, no nulls.

        A null becomes the mean, 0. log_number takes numbers below 0 as 0.
        """
        inputs: tuple[str, ...] = (self.name,)
        raw: list[Operator] = []
        match self.kind:
            case "relative_number" if self.relative:
                inputs, raw = (self.name, self.relative.category), [self.relative]
            case "log_number":
                raw = [Clip(min_value=0), Log1p()]
            case "item_age":
                inputs, raw = (ITEM_ID, EVENT_TIME), [ItemAge(self.name, vocabulary)]
        return Chain(inputs, (*raw, self.scaler, FillMissing(0)))

    def statistics(self) -> NumberStatistics:
        """What was fitted; with nothing to fit a mean is 0."""
        fitted: dict[str, Any] = {}
        if relative := self.relative:
            fitted |= {"relative_to": relative.category, "overall_mean": relative.overall_mean}
            fitted["values"] = relative.known.values.to_pylist()
            fitted["means"] = relative.means.tolist()
        if isinstance(self.scaler, Standardise):
            mean, std = self.scaler.means[self.name], self.scaler.stds[self.name]
            fitted["mean"] = float(np.nan_to_num(mean, posinf=0, neginf=0))
            fitted["std"] = float(np.nan_to_num(std, posinf=0, neginf=0))
        if isinstance(self.scaler, GaussRank):
            fitted |= {"knots": self.scaler.knots.tolist(), "n": self.scaler.n}
        return NumberStatistics(**fitted)


def looks_ahead(features: Mapping[str, FeatureConfig]) -> bool:
    """Whether a window's numbers depend on later windows, so that no window can be appended."""
    return any(feature.fit == "look_ahead" for feature in features.values())


def fit_features(
    features: Mapping[str, FeatureConfig],
    paths: Mapping[str, Path],
    fit_windows: int,
    vocabularies: Vocabularies,
) -> dict[str, FeatureStatistics]:
    """Fit the features on train events.

    Args:
        features: by name.
        paths: event tables with a column `train`, by kept window, in order of time.
        fit_windows: how many of the windows features are fitted on, unless they look ahead.
        vocabularies: that of item_id gives the items' ages.

    Returns:
        Statistics by feature; a feature without fitted numbers has only kind and columns. With
        nothing to fit a mean is 0; numbers that do not vary have std 0 and are only centred.
    """

    def fit(kind: str, chosen: Sequence[Path]) -> dict[str, NumberStatistics]:
        names = [name for name, each in features.items() if each.is_fitted and each.fit == kind]
        return _fit_numbers(names, features, chosen, vocabularies) if names else {}

    files = list(paths.values())
    numbers = fit("first_windows", files[:fit_windows]) | fit("look_ahead", files)
    by_window: dict[str, dict[str, NumberStatistics]] = defaultdict(dict)
    for window, path in paths.items():
        for name, fitted in fit("look_ahead_window", [path]).items():
            by_window[name][window] = fitted
    return {
        name: FeatureStatistics(
            kind=feature.kind,
            columns=feature.columns_of(name),
            type=feature.type if feature.kind == "categorical" else None,
            of_item=feature.of_item or None,
            windows=by_window.get(name),
            **vars(numbers.get(name, NumberStatistics())),
        )
        for name, feature in features.items()
    }


def _fit_numbers(
    names: Sequence[str],
    features: Mapping[str, FeatureConfig],
    paths: Sequence[Path],
    vocabularies: Vocabularies,
) -> dict[str, NumberStatistics]:
    """Fit numeric features on some files, a Dask partition per file."""
    vocabulary = vocabularies[ITEM_ID]
    items = [ITEM_ID] >> LookUp(vocabulary)
    types = {ITEM_ID: vocabulary.schema.field(VALUE).type, EVENT_TIME: pa.int64()}
    operators = []
    for name in names:
        feature, category = features[name], None
        if feature.kind != "item_age":
            types[name] = pa.float64()
        if feature.relative_to is not None:
            category = feature.relative_to, features[feature.relative_to].type
            types[category[0]] = ID_TYPES[category[1]]
        operators.append(NumberOperators(name, feature.kind, feature.scaling, category))
    nodes = [each.chain(vocabulary).node(items) for each in operators]
    empty = to_frame(pa.schema(types.items()).empty_table())
    frames = dd.from_map(_train_events, paths, types=types, meta=empty)
    Workflow(sum(nodes[1:], nodes[0])).fit(Dataset(frames, cpu=True))
    return {each.name: each.statistics() for each in operators}


def _train_events(path: Path, types: Types) -> pd.DataFrame:
    table = pq.read_table(path, columns=list(types), filters=pc.field("train"))
    return to_frame(input_table(table, types))


def build_workflow(
    statistics: Statistics, vocabularies: Vocabularies, n_known: Mapping[str, Ints] | None = None
) -> Workflow:
    """Rebuild the fitted workflow, event by event: item_id first, then every feature's columns.

    `n_known` is as for `encode`.
    """
    n_known = n_known or {}
    known_items = n_known.get(ITEM_ID)
    items = [ITEM_ID] >> LookUp(vocabularies[ITEM_ID], (Tags.ITEM_ID, Tags.ID), known_items)
    chains = feature_chains(statistics, vocabularies, n_known)
    node = sum((chain.node(items) for chain in chains), items)
    schema = Schema([ColumnSchema(name) for name in input_types(statistics)])
    workflow: Workflow = Workflow(node).fit_schema(schema)
    return workflow


def feature_chains(
    statistics: Statistics, vocabularies: Vocabularies, n_known: Mapping[str, Ints]
) -> list[Chain]:
    """Rebuild every feature's fitted operators; `n_known` is as for `encode`."""
    chains = []
    for name, feature in statistics.features.items():
        match feature.kind:
            case "categorical":
                look_up = LookUp(vocabularies[name], n_known=n_known.get(name))
                chain = Chain((name,), (look_up,))
            case "hour" | "weekday":
                cyclic = CyclicTime(name, feature.kind, statistics.timezone)
                chain = Chain((EVENT_TIME,), (cyclic,))
            case _:
                number = NumberOperators.from_statistics(name, statistics)
                chain = number.chain(vocabularies[ITEM_ID])
        chains.append(chain)
    return chains


def encode(
    events: pa.Table,
    statistics: Statistics,
    vocabularies: Vocabularies,
    n_known: Mapping[str, Ints] | None = None,
) -> pa.Table:
    """Encode raw events, row by row: item_id and every feature's columns, int32 or float32.

    A value that its vocabulary does not hold becomes 1 (unknown). A feature column that is missing
    counts as null: index 1, or the mean of a number. `n_known` says, by column, how many values of
    its vocabulary each event's window knows; None: all.
    """
    schema = pa.schema(encoded_columns(statistics).items())
    if len(events) == 0:  # Merlin loses the columns of empty frames
        return schema.empty_table()
    workflow = build_workflow(statistics, vocabularies, n_known)
    frame = to_frame(input_table(events, input_types(statistics)))
    table = pa.Table.from_pandas(workflow.transform(frame), preserve_index=False)
    return table.replace_schema_metadata().select(schema.names).cast(schema)


def encode_lists(
    events: pa.Table,
    first: Sequence[int] | NDArray[np.int64],
    statistics: Statistics,
    vocabularies: Vocabularies,
    n_known: Mapping[str, Ints] | None = None,
) -> pa.Table:
    """Encode raw events and split them into lists, one per session.

    `first` holds the row at which each list begins, ascending from 0; a list may be empty. Other
    arguments are those of `encode`.

    Returns:
        A row per list: item_id, event_time and the features' columns.
    """
    table = encode(events, statistics, vocabularies, n_known)
    table = table.add_column(1, EVENT_TIME, events[EVENT_TIME].cast(TIMESTAMP))
    offsets = pa.array(np.append(first, len(events)).astype(np.int32))
    lists = [pa.ListArray.from_arrays(offsets, column.combine_chunks()) for column in table.columns]
    return pa.table(lists, table.column_names)


def encoded_columns(statistics: Statistics) -> dict[str, pa.DataType]:
    """Type of an event's value in every encoded column, in the order of a window file."""
    types = {ITEM_ID: pa.int32()}
    for feature in statistics.features.values():
        type_ = pa.int32() if feature.kind == "categorical" else pa.float32()
        types |= dict.fromkeys(feature.columns, type_)
    return types


def input_table(events: pa.Table, types: Types) -> pa.Table:
    """Convert raw events to the workflow's input columns; NaN and infinity become null.

    So do numbers that become infinite as a float32, as in a log.
    """
    columns = {}
    for name, type_ in types.items():
        if name == EVENT_TIME:
            columns[name] = events[name].cast(TIMESTAMP).cast(type_)
        elif name not in events.column_names:
            columns[name] = pa.nulls(len(events), type_)
        else:
            columns[name] = events[name].cast(type_)
            if type_ == pa.float64():
                is_finite = pc.less_equal(pc.abs(columns[name]), LARGEST)
                columns[name] = pc.if_else(is_finite, columns[name], None)
    return pa.table(columns)


def to_frame(table: pa.Table) -> pd.DataFrame:
    """Convert a table to a data frame."""
    # Int64 keeps 19-digit ids exact next to nulls; numpy would turn the column into floats.
    return table.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get)
