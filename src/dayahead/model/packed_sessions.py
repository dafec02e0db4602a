"""Packed sessions: several in each row of a batch, so that little padding is computed."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

ROW_STEP, WIDTH_STEP = 4, 4
"""Rows and positions are rounded up to multiples of these, so that steps share shapes: oneDNN
compiles a bfloat16 product for each new shape."""


@dataclass(frozen=True)
class PackedSessions:
    """Where the events of a batch [B, L] are in a packed one [R, W].

    Padding holds a copy of the first event; its states must not be used.
    """

    sources: Int[Tensor, "R W"]
    """Position in the batch, of B * L, that a position of a row takes its event from."""
    indices: Int[Tensor, "B L"]
    """Position in the rows, of R * W, of each event."""
    steps: Int[Tensor, "R W"]
    """Each event's position in its session, from 0."""
    is_other: Bool[Tensor, "R W W"]
    """Whether position [r, j] is of another session than [r, i]."""

    def pack(self, values: Shaped[Tensor, "B L ..."]) -> Shaped[Tensor, "R W ..."]:
        """Move values of events to the packed rows."""
        return values.flatten(0, 1)[self.sources]

    def take(
        self, states: Float[Tensor, "R W D"], is_chosen: Bool[Tensor, "B L"]
    ) -> Float[Tensor, "T D"]:
        """Return the states of some events, in the order of the batch."""
        return states.flatten(0, 1).index_select(0, self.indices[is_chosen])


def pack_sessions(is_event: Bool[Tensor, "B L"], longest_row: int) -> PackedSessions:
    """Put sessions into the fewest rows that best-fit decreasing finds; each has an event.

    Rows are as wide as the longest session, or a little wider, but no wider than `longest_row`.
    """
    lengths, length = is_event.sum(1), is_event.shape[1]
    longest = int(lengths.max())
    width = max(longest, min(-(-longest // WIDTH_STEP) * WIDTH_STEP, longest_row))
    starts, n_rows = _starts(lengths.tolist(), width)
    within = torch.arange(length)
    indices = torch.where(is_event, torch.tensor(starts)[:, None] + within, 0)
    events = is_event.flatten().nonzero().squeeze(1)
    held = indices.flatten()[events]
    sources, steps, sessions = torch.zeros(3, n_rows * width, dtype=torch.long)
    # Sessions are numbered from 1; 0 is padding, a session of its own in the attention mask.
    sources[held], steps[held], sessions[held] = events, events % length, events // length + 1
    sessions = sessions.view(n_rows, width)
    is_other = sessions[:, :, None] != sessions[:, None, :]
    return PackedSessions(sources.view_as(sessions), indices, steps.view_as(sessions), is_other)


def _starts(lengths: list[int], width: int) -> tuple[list[int], int]:
    """First position of each session in rows of `width`, and the number of rows."""
    rooms: list[list[int]] = [[] for _ in range(width + 1)]  # rows by number of free positions
    starts, n_rows = [0] * len(lengths), 0
    for session in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
        length = lengths[session]
        room = next((room for room in range(length, width + 1) if rooms[room]), width)
        if rooms[room]:
            row = rooms[room].pop()
        else:
            row, n_rows = n_rows, n_rows + 1
        starts[session] = (row + 1) * width - room
        rooms[room - length].append(row)
    return starts, -(-n_rows // ROW_STEP) * ROW_STEP
