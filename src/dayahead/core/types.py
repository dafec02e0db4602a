"""Type aliases that several rooms share."""

from typing import Literal

Device = Literal["cpu", "cuda"]
FeatureKind = Literal[
    "categorical", "log_number", "number", "relative_number", "hour", "weekday", "item_age"
]
IdType = Literal["int", "string"]
"""Of item ids and categorical values."""
