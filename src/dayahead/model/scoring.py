"""What measuring and recommending ask of a fitted model: the one door both go through."""

from collections.abc import Callable, Mapping

from jaxtyping import Float, Int
from torch import Tensor

Scorer = Callable[[Mapping[str, Tensor], Int[Tensor, " B"]], Float[Tensor, "B C"]]
"""From columns [B, L] and the number of known events per session (1 at least) to scores of the
candidates, float32, higher is better. Events behind the known ones are never read."""
