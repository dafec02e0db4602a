"""Types that several rooms share."""

from typing import Final, Literal

import pyarrow as pa

Device = Literal["cpu", "cuda"]
FeatureKind = Literal[
    "categorical", "log_number", "number", "relative_number", "hour", "weekday", "item_age"
]
IdType = Literal["int", "string"]
"""Of item ids and categorical values."""
ID_TYPES: Final = {"int": pa.int64(), "string": pa.string()}
