"""A window while its clicks are counted: each tick's examples are read before its clicks count."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from dayahead.memory.awaited import AwaitedExamples
from dayahead.memory.clicks import Clicks, Ints, WindowSessions
from dayahead.memory.head_examples import Examples
from dayahead.memory.outline import Positions

NetworkScores = Callable[[Positions, Int[Tensor, "B C"]], Float[Tensor, "B C"]]
"""From the positions of prefixes and their candidates to scores, which are logits of a softmax."""


class Drawing(NamedTuple):
    """How the examples of a window are drawn."""

    n_most: int
    tick: int
    """Microseconds; 0: all examples are read at once."""
    generator: torch.Generator
    is_first: bool
    """Whether it is the first window, whose examples come from its later half alone."""


@dataclass
class OpenWindow:
    """What the head will learn from a window."""

    sessions: WindowSessions
    order: Ints
    """Rows of all that have clicks, in order of time."""
    half_end: int
    """Time of the last click of the earlier half; 0 where it is empty."""
    learned: Clicks
    """Sessions from which the head learns, in this order too."""
    rows: Ints
    """Their rows in the window, for the network."""
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
    """Number of positions whose tick has come."""
    awaited: AwaitedExamples | None = None
    """Examples of the present, which are read before the memories go on."""
    examples: list[Examples] = field(default_factory=list)
    predicted: list[tuple[Positions, NDArray[np.int32]]] = field(default_factory=list)
    """Positions of the examples in the window, and their candidates."""

    @classmethod
    def of(
        cls, sessions: WindowSessions, end: int, network: NetworkScores | None, drawing: Drawing
    ) -> "OpenWindow":
        """Draw the examples of a window, whose arguments are those of `MemoryModel.open`.

        All are clicks of a type that is predicted, but the first of a session. With a tick none is
        a click after the window's end.
        """
        n_most, tick, generator, is_first = drawing
        outline = sessions.outline(end if tick else None)
        order = outline.order()
        half = len(order) // 2
        rows = order[half:] if is_first else order
        drawn = outline.drawn(rows, n_most, generator)
        chosen, places = np.unique(drawn.rows, return_inverse=True)
        learned, positions = sessions.hold(rows[chosen]), Positions(places, drawn.n_after)
        ticks = learned.times_before(positions) // tick * tick if tick else places * 0
        # Stable: the examples of a tick stay in order of time, for the replay keeps the last ones.
        by_tick = np.argsort(ticks, kind="stable")
        return cls(
            sessions,
            order,
            int(outline.ends[order[half - 1]]) if half else 0,
            learned,
            rows[chosen],
            end,
            network,
            generator,
            positions.take(by_tick),
            ticks[by_tick],
        )

    def earlier_half(self) -> tuple[Iterator[Clicks], int]:
        """Return the parts of the first half, and the time of its last click."""
        return self.sessions.parts(self.order[: len(self.order) // 2]), self.half_end

    def add(self, examples: Examples, positions: Positions, candidates: NDArray[np.int32]) -> None:
        """Add what was read at positions among `learned`, where the target is a candidate."""
        targets = self.learned.following(positions)[:, None]
        is_target = torch.from_numpy(candidates == targets) & examples.is_candidate
        # A target that is no candidate has no column: the loss is over candidates only.
        is_learnable = is_target.any(1)
        weights = torch.tensor(self.learned.worth_after(positions), dtype=torch.float32)
        known = replace(examples, targets=is_target.int().argmax(1), weights=weights)
        self.examples.append(known.take(is_learnable))
        [learnable] = is_learnable.numpy().nonzero()
        in_window = self.in_window(positions.take(learnable))
        self.predicted.append((in_window, candidates[learnable]))

    def every_predicted(self) -> tuple[Positions, NDArray[np.int32]]:
        """Return the positions of all examples in the window, and their candidates [N, C]."""
        positions, candidates = zip(*self.predicted, strict=True)
        joined = (np.concatenate(each) for each in zip(*positions, strict=True))
        return Positions(*joined), np.concatenate(candidates)

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
        """Return positions among the rows of the window."""
        return Positions(self.rows[positions.rows], positions.n_after)
