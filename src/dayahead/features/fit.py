"""Fitting of the features' statistics on train events."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import dask.dataframe as dd
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from merlin.io import Dataset
from nvtabular import Workflow

from dayahead.core.columns import EVENT_TIME, ITEM_ID, VALUE
from dayahead.core.types import ID_TYPES, Device
from dayahead.dataset.schema import FeatureConfig
from dayahead.features.operators import LookUp
from dayahead.features.scalers import NumberOperators
from dayahead.features.workflow import Types, Vocabularies, input_table, to_frame
from dayahead.windows.metadata import FeatureStatistics, NumberStatistics


def looks_ahead(features: Mapping[str, FeatureConfig]) -> bool:
    """Whether a window's numbers depend on later windows, so that no window can be appended."""
    return any(feature.fit == "look_ahead" for feature in features.values())


def fit_features(
    features: Mapping[str, FeatureConfig],
    paths: Mapping[str, Path],
    fit_windows: int,
    vocabularies: Vocabularies,
    device: Device,
) -> dict[str, FeatureStatistics]:
    """Fit the features on train events.

    Args:
        features: by name.
        paths: event tables with a column `train`, by kept window, in order of time.
        fit_windows: how many of the windows features are fitted on, unless they look ahead.
        vocabularies: that of item_id gives the items' ages.
        device: where to compute.

    Returns:
        Statistics by feature; a feature without fitted numbers has only kind and columns. With
        nothing to fit a mean is 0; numbers that do not vary have std 0 and are only centred.
    """

    def fit(kind: str, chosen: Sequence[Path]) -> dict[str, NumberStatistics]:
        names = [name for name, each in features.items() if each.is_fitted and each.fit == kind]
        return _fit_numbers(names, features, chosen, vocabularies, device) if names else {}

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
    device: Device,
) -> dict[str, NumberStatistics]:
    """Fit numeric features on some files, a Dask partition per file."""
    vocabulary = vocabularies[ITEM_ID]
    items = [ITEM_ID] >> LookUp(vocabulary)
    types = {ITEM_ID: vocabulary.schema.field(VALUE).type, EVENT_TIME: pa.int64()}
    operators = []
    for name in names:
        feature, category = features[name], features[name].relative_to
        if feature.kind != "item_age":
            types[name] = pa.float64()
        if category is not None:
            types[category] = ID_TYPES[features[category].type]
        relative_to = (category, features[category].type) if category is not None else None
        operators.append(NumberOperators(name, feature.kind, feature.scaling, relative_to))
    nodes = [each.node(items, vocabulary) for each in operators]
    empty = to_frame(pa.schema(types.items()).empty_table(), "cpu")
    frames = dd.from_map(_train_events, paths, types=types, meta=empty)
    Workflow(sum(nodes[1:], nodes[0])).fit(Dataset(frames, cpu=device == "cpu"))
    return {each.name: each.statistics() for each in operators}


def _train_events(path: Path, types: Types) -> pd.DataFrame:
    """Read the input columns of a window's train events."""
    table = pq.read_table(path, columns=list(types), filters=pc.field("train"))
    return to_frame(input_table(table, types), "cpu")
