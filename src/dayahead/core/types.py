"""Type aliases that several rooms share."""

from typing import Literal

Device = Literal["cpu", "cuda"]
