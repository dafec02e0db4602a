"""Seeds by purpose, and random numbers of a step that do not depend on the number of processes."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from dayahead.core.columns import IS_TARGET


def derived_seed(seed: int, *names: str | int) -> int:
    """Return 63 bits of sha256 over the root seed and the names of a purpose.

    Random streams of different purposes are then independent, and what is drawn for (window, step)
    does not depend on anything drawn before.
    """
    text = "\x1f".join(str(part) for part in (seed, *names))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


@dataclass(frozen=True)
class StepRandom:
    """Random numbers drawn for the whole global batch from (seed, purpose), then sliced to rows.

    All tensors are on the CPU.
    """

    seed: int
    global_items: Int[Tensor, "G L"]
    """Vocabulary indices of the whole global batch, zero-padded; the same on every process."""
    global_n_past: Int[Tensor, " G"]
    """Events at the start of each row that are the user's past: input only, never predicted."""
    rows: Int[Tensor, " B"]
    """Rows of the global batch on this process."""
    width: int
    """Positions on this process, counted from the first."""
    global_marks: Mapping[str, Tensor] = field(default_factory=dict)
    """What events count for, by MARKS: [G, L] each."""

    @property
    def n_past(self) -> Int[Tensor, " B"]:
        """Past events of this process's rows."""
        return self.global_n_past[self.rows]

    def targets_among(self, is_event: Bool[Tensor, "B W"], first: int = 0) -> Bool[Tensor, "B W"]:
        """Those of the events, which are those of a row from `first` on, that may be predicted."""
        if IS_TARGET not in self.global_marks:
            return is_event
        flags = self.global_marks[IS_TARGET][self.rows, first : first + is_event.shape[1]]
        return is_event & (flags == 1)

    def uniform(self, purpose: str) -> Float[Tensor, "B W"]:
        """A number in [0, 1) for every position on this process."""
        numbers = torch.rand(self.global_items.shape, generator=self.generator(purpose))
        return numbers[self.rows, : self.width]

    def generator(self, purpose: str) -> torch.Generator:
        """A CPU generator with the same state on every process, for what the batch shares."""
        return torch.Generator().manual_seed(derived_seed(self.seed, purpose))

    def for_global_batch(self) -> "StepRandom":
        """The same random numbers, not sliced."""
        n_rows, width = self.global_items.shape
        return replace(self, rows=torch.arange(n_rows), width=width)
