"""Training examples of the head, and examples of earlier windows that it replays."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

NAMES = ("features", "is_candidate", "is_own", "context", "targets", "weights")


@dataclass(frozen=True)
class Examples:
    """Prefixes as the head sees them, with the items that follow."""

    features: Float[Tensor, "B C F"]
    is_candidate: Bool[Tensor, "B C"]
    """False where a prefix has fewer candidates."""
    is_own: Bool[Tensor, "B C"]
    """Whether the candidate is in the prefix."""
    context: Float[Tensor, "B X"]
    targets: Int[Tensor, " B"]
    """Column of each next item, -1 where it is no candidate."""
    weights: Float[Tensor, " B"]
    """Weight of each in the loss."""

    def __len__(self) -> int:
        """Return the number of prefixes."""
        return len(self.targets)

    def tensors(self) -> list[Tensor]:
        """Return all, in the order of their names."""
        return [getattr(self, name) for name in NAMES]

    def take(self, rows: Int[Tensor, " R"] | Bool[Tensor, " B"] | slice) -> "Examples":
        """Return some of the prefixes."""
        return Examples(*(each[rows] for each in self.tensors()))

    @classmethod
    def joined(cls, parts: Iterable["Examples"], n: int) -> "Examples":
        """Join parts with equally many candidates, `n` prefixes in all.

        They are taken one by one, so that they need not be held beside the whole.
        """
        whole: list[Tensor] = []
        start = 0
        for part in parts:
            whole = whole or [each.new_empty(n, *each.shape[1:]) for each in part.tensors()]
            for filled, each in zip(whole, part.tensors(), strict=True):
                filled[start : start + len(part)] = each
            start += len(part)
        return cls(*whole)

    def half(self) -> "Examples":
        """Return features and context in half precision, as they are kept."""
        return replace(self, features=self.features.half(), context=self.context.half())

    def single(self) -> "Examples":
        """Return features and context in single precision, as they are computed with."""
        return replace(self, features=self.features.float(), context=self.context.float())


class Replay:
    """The latest examples of earlier windows, in half precision."""

    def __init__(self, n_kept: int, n_candidates: int, n_features: int, n_context: int) -> None:
        self.n_kept = n_kept
        self.kept = Examples(
            torch.zeros(0, n_candidates, n_features).half(),
            torch.zeros(0, n_candidates, dtype=torch.bool),
            torch.zeros(0, n_candidates, dtype=torch.bool),
            torch.zeros(0, n_context).half(),
            torch.zeros(0, dtype=torch.int64),
            torch.zeros(0),
        )

    def add(self, examples: Examples) -> None:
        """Keep the last examples of a window, then as many earlier ones as `n_kept` allows."""
        latest = examples.take(slice(max(0, len(examples) - self.n_kept), None)).half()
        n_left = self.n_kept - len(latest)
        earlier = self.kept.take(slice(max(0, len(self.kept) - n_left), None))
        self.kept = Examples.joined([earlier, latest], len(earlier) + len(latest))

    def state_dict(self) -> dict[str, Tensor]:
        """The examples kept."""
        return {name: getattr(self.kept, name) for name in NAMES}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Replace the examples."""
        self.kept = Examples(*(state[name].clone() for name in NAMES))
