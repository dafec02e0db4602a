"""A window while its clicks are counted: each tick's examples are read before its clicks count."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from dayahead.memory.awaited import AwaitedExamples
from dayahead.memory.clicks import Clicks, Ints, Positions
from dayahead.memory.head_examples import Examples

NetworkScores = Callable[[Positions, Int[Tensor, "B C"]], Float[Tensor, "B C"]]
"""From the positions of prefixes and their candidates to scores, which are logits of a softmax."""


@dataclass
class OpenWindow:
    """What the head will learn from a window."""

    sessions: Clicks
    """All of the window, in order of time."""
    learned: Clicks
    """Those of them from which the head learns, in this order too."""
    rows: Ints
    """Their rows in the window as it was given, for the network."""
    end: int
    """Microseconds since 1970."""
    network: NetworkScores | None
    generator: torch.Generator
    positions: Positions
    """[P] of the examples, in the order in which they are read."""
    ticks: Ints
    """[P] when each is read: the last tick up to the prefix's last click; 0 without ticks."""
    before: tuple[Mapping[str, Tensor], Mapping[str, Tensor]] | None = None
    """States of memories and running sessions before the window, where there are ticks."""
    n_read: int = 0
    awaited: AwaitedExamples | None = None
    """Examples of the present, which are read before the memories go on."""
    examples: list[Examples] = field(default_factory=list)
    predicted: list[tuple[Positions, NDArray[np.int32]]] = field(default_factory=list)
    """Positions of the examples in the window, and their candidates."""

    def add(self, examples: Examples, positions: Positions, candidates: NDArray[np.int32]) -> None:
        """Add what was read at positions among `learned`, where the target is a candidate."""
        # A target that is no candidate has no column: the loss is over candidates only.
        is_learnable = examples.targets >= 0
        weights = torch.tensor(self.learned.worth_after(positions), dtype=torch.float32)
        self.examples.append(replace(examples, weights=weights).take(is_learnable))
        [learnable] = is_learnable.numpy().nonzero()
        in_window = self.in_window(positions.take(learnable))
        self.predicted.append((in_window, candidates[learnable]))

    def next_tick(self) -> int | None:
        """Return the tick of the next examples, None where all are read."""
        return int(self.ticks[self.n_read]) if self.n_read < len(self.ticks) else None

    def wait(self, tick: int) -> AwaitedExamples:
        """Wait for the examples of a tick, and go on to those after it."""
        end = int(np.searchsorted(self.ticks, tick, side="right"))
        start, self.n_read = self.n_read, end
        positions = self.positions.take(np.arange(start, end))
        self.awaited = AwaitedExamples(positions, self.learned.prefixes(positions))
        return self.awaited

    def in_window(self, positions: Positions) -> Positions:
        """Return positions among the rows of the window as it was given."""
        return Positions(self.rows[positions.rows], positions.n_after)


def drawn_positions(
    sessions: Clicks, end: int, n_most: int, tick: int, generator: torch.Generator
) -> tuple[Positions, Ints]:
    """Draw examples, which are clicks but the first of a session; return their ticks too.

    All are of a type that is predicted. With a tick these are in order of the ticks, and none is a
    click after the window's end.
    """
    every = sessions.positions()
    eligible = sessions.learnable(every)
    times = sessions.times_before(every)
    if tick:
        eligible = eligible[sessions.times_of_following(every)[eligible] < end]
    drawn = torch.randperm(len(eligible), generator=generator)[:n_most]
    # Back in order of time: the replay keeps the last examples.
    chosen = eligible[np.sort(drawn.numpy())]
    ticks = times[chosen] // tick * tick if tick else chosen * 0
    order = np.argsort(ticks, kind="stable")
    return every.take(chosen[order]), ticks[order]
