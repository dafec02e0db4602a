"""Statistics of the features: what their operators are fitted to, and on whose events."""

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
from dayahead.core.types import Device
from dayahead.dataset.schema import FeatureConfig
from dayahead.features.inputs import Types, frame_of, inputs
from dayahead.features.numbers import VALUE_TYPES, NumberOperators
from dayahead.features.operators import LookUp
from dayahead.windows.metadata import FeatureStatistics, NumberStatistics


def looks_ahead(features: Mapping[str, FeatureConfig]) -> bool:
    """Whether the numbers of a window depend on later ones, so that none can be appended."""
    return any(feature.fit == "look_ahead" for feature in features.values())


def fitted(
    features: Mapping[str, FeatureConfig],
    paths: Mapping[str, Path],
    fit_windows: int,
    vocabularies: Mapping[str, pa.Table],
    device: Device,
) -> dict[str, FeatureStatistics]:
    """Fit the numbers on train events, a Dask partition per file.

    Args:
        features: by name.
        paths: event tables with the roles' columns, by window that stands, in order of time.
        fit_windows: how many of them a feature is fitted on that does not look ahead.
        vocabularies: item_id's tells the items' ages.
        device: where to compute.

    Returns:
        What statistics.json holds of every feature. With nothing to fit a mean is 0; what does
        not vary has std 0 and is only centred.
    """

    def fit(kind: str, chosen: Sequence[Path]) -> dict[str, NumberStatistics]:
        names = [name for name, each in features.items() if each.is_fitted and each.fit == kind]
        return _fitted(names, features, chosen, vocabularies, device) if names else {}

    files = list(paths.values())
    numbers = fit("first_windows", files[:fit_windows]) | fit("look_ahead", files)
    windows: dict[str, dict[str, NumberStatistics]] = defaultdict(dict)
    for window, path in paths.items():
        for name, entry in fit("look_ahead_window", [path]).items():
            windows[name][window] = entry
    return {
        name: FeatureStatistics(
            kind=feature.kind,
            columns=feature.columns_of(name),
            type=feature.type if feature.kind == "categorical" else None,
            windows=windows.get(name),
            **vars(numbers.get(name, NumberStatistics())),
        )
        for name, feature in features.items()
    }


def _fitted(
    names: Sequence[str],
    features: Mapping[str, FeatureConfig],
    paths: Sequence[Path],
    vocabularies: Mapping[str, pa.Table],
    device: Device,
) -> dict[str, NumberStatistics]:
    """Fit some features on the train events of some files."""
    items = [ITEM_ID] >> LookUp(vocabularies[ITEM_ID])
    operators = []
    types = {ITEM_ID: vocabularies[ITEM_ID].schema.field(VALUE).type, EVENT_TIME: pa.int64()}
    for name in names:
        feature, category = features[name], features[name].relative_to
        relative_to = (category, features[category].type) if category else None
        operators.append(NumberOperators(name, feature.kind, feature.scaling, relative_to))
        types |= {name: pa.float64()} if feature.kind != "item_age" else {}
        types |= {category: VALUE_TYPES[features[category].type]} if category else {}
    nodes = [each.node(items, vocabularies[ITEM_ID]) for each in operators]
    none = frame_of(pa.schema(types.items()).empty_table(), "cpu")
    frames = dd.from_map(_train_events, paths, types=types, meta=none)
    Workflow(sum(nodes[1:], nodes[0])).fit(Dataset(frames, cpu=device == "cpu"))
    return {each.name: each.statistics() for each in operators}


def _train_events(path: Path, types: Types) -> pd.DataFrame:
    """Raw columns of a window's train events."""
    table = pq.read_table(path, columns=list(types), filters=pc.field("train"))
    return frame_of(inputs(table, types), "cpu")
