"""The raw columns that a workflow or a model reads; imports neither NVTabular nor Dask."""

import pyarrow as pa

from dayahead.core.columns import EVENT_TIME, ID_TYPES, ITEM_ID
from dayahead.dataset.features import TIME_FEATURES
from dayahead.windows.metadata import Statistics


def input_types(statistics: Statistics) -> dict[str, pa.DataType]:
    """Types of the workflow's input columns."""
    types = {ITEM_ID: ID_TYPES[statistics.item_type], EVENT_TIME: pa.int64()}
    for name, feature in statistics.features.items():
        if feature.type is not None:
            types[name] = ID_TYPES[feature.type]
        elif feature.kind not in TIME_FEATURES:
            types[name] = pa.float64()
            if (relative := statistics.category_of(name)) is not None:
                types[relative[0]] = ID_TYPES[relative[1]]
    return types
