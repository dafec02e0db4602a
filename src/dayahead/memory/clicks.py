"""Sessions as the memories read them: flat arrays of clicks, and the prefixes to predict from."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from dayahead.core.columns import N_RESERVED, UNKNOWN
from dayahead.core.ragged import cut, offsets_of, ranges
from dayahead.memory.outline import Outline, Positions

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]
Columns = NDArray[np.int32]
"""Catalogue indices."""
CLICKS = 1 << 18
"""Most clicks that are counted at once, unless one session has more: bounds memory."""
T = TypeVar("T")
_PRIME = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Clicks:
    """Rows of clicks: row r holds the clicks offsets[r]:offsets[r + 1], in order of time.

    A row is a session, or the known part of one. The user's earlier clicks are in `past` instead.
    """

    items: Ints
    """[N] catalogue indices; 0 and 1 (padding, unknown) are read as no item."""
    times: Ints
    """[N] microseconds since 1970."""
    categories: Ints
    """[N, G] values of G categorical columns."""
    offsets: Ints
    """[R + 1] start of each row, and the end of the last one."""
    past: "Clicks | None" = None
    """R rows: what each row's user clicked before it; None where no past is read."""
    worth: Floats | None = None
    """[N] what each click counts; None: 1."""
    is_target: Flags | None = None
    """[N] whether the click is of a type that is predicted; None: all are."""

    @classmethod
    def none(cls, n_rows: int, n_categories: int) -> "Clicks":
        """Return rows without clicks."""
        no = np.zeros(0, np.int64)
        return cls(no, no, np.zeros((0, n_categories), np.int64), np.zeros(n_rows + 1, np.int64))

    @classmethod
    def cat(cls, parts: Sequence["Clicks"], n_categories: int) -> "Clicks":
        """Join the rows of all parts, of which there may be none."""
        # With an empty part, concatenation works for no parts too.
        every = [cls.none(0, n_categories), *parts]
        have_past = any(part.past is not None for part in parts)
        lengths = np.concatenate([part.lengths for part in every])
        return cls(
            np.concatenate([part.items for part in every]),
            np.concatenate([part.times for part in every]),
            np.concatenate([part.categories for part in every]),
            offsets_of(lengths),
            cls.cat([part.earlier for part in parts], n_categories) if have_past else None,
            np.concatenate(worth) if (worth := _given(part.worth for part in parts)) else None,
            np.concatenate(flags) if (flags := _given(part.is_target for part in parts)) else None,
        )

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.offsets) - 1

    @cached_property
    def lengths(self) -> Ints:
        """[R] clicks of each row."""
        return np.diff(self.offsets)

    @cached_property
    def last(self) -> Ints:
        """[R] each row's last click; no row may be empty."""
        return self.offsets[1:] - 1

    @property
    def earlier(self) -> "Clicks":
        """The past: rows without clicks where none is read."""
        if self.past is None:
            return Clicks.none(len(self), self.categories.shape[1])
        return self.past

    def after_past(self) -> "Clicks":
        """Return rows that start with the user's past, and that have no `past` any more."""
        order = np.arange(2 * len(self)).reshape(2, -1).T.ravel()  # each row's past, then the row
        # No reader needs what clicks count; the past may have it where the row has not.
        parts = [
            replace(each, past=None, worth=None, is_target=None) for each in (self.earlier, self)
        ]
        both = Clicks.cat(parts, self.categories.shape[1]).take(order)
        return replace(both, offsets=both.offsets[::2])

    def take(self, rows: Ints) -> "Clicks":
        """Return some rows, in the order given."""
        return self._first_clicks(rows, self.lengths[rows])

    def prefixes(self, positions: Positions) -> "Clicks":
        """Return the clicks of rows up to some positions, with the past of these rows."""
        return self._first_clicks(positions.rows, self.lengths[positions.rows] - positions.n_after)

    def times_before(self, positions: Positions) -> Ints:
        """Return the time of the last click of each prefix: when its prediction is asked for."""
        return np.asarray(self.times[self._after(positions) - 1])

    def following(self, positions: Positions) -> Ints:
        """Return the item after each position."""
        return np.asarray(self.items[self._after(positions)])

    def worth_of(self, clicks: Ints) -> Floats:
        """Return what some clicks count, [k], or [1] where all count the same."""
        return np.ones(1) if self.worth is None else self.worth[clicks]

    def worth_after(self, positions: Positions) -> Floats:
        """Return what the click after each position counts."""
        return np.broadcast_to(self.worth_of(self._after(positions)), len(positions.rows))

    def _after(self, positions: Positions) -> Ints:
        """Return the click after each position."""
        return np.asarray(self.offsets[positions.rows + 1] - positions.n_after)

    def _first_clicks(self, rows: Ints, lengths: Ints) -> "Clicks":
        clicks = ranges(self.offsets[rows], lengths)
        columns = self.items[clicks], self.times[clicks], self.categories[clicks]
        past = None if self.past is None else self.past.take(rows)
        worth = None if self.worth is None else self.worth[clicks]
        is_target = None if self.is_target is None else self.is_target[clicks]
        return Clicks(*columns, offsets_of(lengths), past, worth, is_target)

    def known(self, is_known: Sequence[Flags]) -> "Clicks":
        """Replace items that are not known, and those reserved, by 0, categories by UNKNOWN.

        `is_known` are flags by index, of the catalogue, then of each categorical column; indices
        beyond them are not known.
        """
        of_items, *of_columns = is_known
        items = np.where(among(self.items, of_items), self.items, 0)
        items[items < N_RESERVED] = 0
        columns = [
            np.where(among(values, flags), values, UNKNOWN)
            for values, flags in zip(self.categories.T, of_columns, strict=True)
        ]
        categories = np.stack(columns, axis=1) if columns else self.categories
        past = None if self.past is None else self.past.known(is_known)
        return replace(self, items=items, categories=categories, past=past)

    def latest(self, n: int) -> Ints:
        """Return each row's last items [R, L], at most `n`, the last click first, 0 for none."""
        steps = np.arange(min(n, self.lengths.max(initial=1)))
        is_click = steps < self.lengths[:, None]
        # Index -1 reads the 0 that is appended to the items below.
        clicks = np.where(is_click, self.last[:, None] - steps, -1)
        return np.asarray(np.append(self.items, 0)[clicks])

    def outline(self, before: int | None = None) -> Outline:
        """Return the outline; the head may learn to predict clicks `before` a time, or all."""
        is_learnable = self.is_target
        if before is not None:
            is_before = self.times < before
            is_learnable = is_before if is_learnable is None else is_before & is_learnable
        # Index -1, of a row without clicks, reads the 0 that is appended to the times.
        ends = np.append(self.times, 0)[np.where(self.lengths, self.last, -1)]
        return Outline(self.lengths, ends, self.hashes(), self._marks(), is_learnable)

    def order(self) -> Ints:
        """Return the order of the rows, as of their outline."""
        return self.outline().order()

    def hold(self, rows: Ints) -> "Clicks":
        """Return some rows, in the order given."""
        return self.take(rows)

    def parts(self, rows: Ints) -> Iterator["Clicks"]:
        """Yield some rows, as `WindowSessions.parts`."""
        return (self.take(rows[part]) for part in cut_clicks(self.lengths[rows]))

    def _marks(self) -> NDArray[np.uint64] | None:
        """Hash what the clicks of each row count and predict; None where all are alike."""
        worth = [] if self.worth is None else [self.worth.view(np.int64)]
        flags = [] if self.is_target is None else [self.is_target.astype(np.int64)]
        return self._hashes_of(worth + flags) if worth + flags else None

    def hashes(self) -> NDArray[np.uint64]:
        """Hash each row and its past; what clicks count does not matter."""
        hashes = self._hashes_of([self.items, self.times, *self.categories.T])
        # Mixed once more, so that the same clicks in the row and in its past do not cancel out.
        return hashes if self.past is None else hashes ^ _mixed(self.past.hashes())

    def _hashes_of(self, columns: Sequence[Ints]) -> NDArray[np.uint64]:
        """Hash the columns of each row; positions count, so the order of its clicks does too."""
        steps = np.arange(len(self.items)) - self.offsets[:-1].repeat(self.lengths)
        mixed = _mixed(steps.astype(np.uint64))
        for column in columns:
            mixed = _mixed(mixed ^ column.astype(np.uint64))
        sums = np.append(np.uint64(0), np.cumsum(mixed))  # modulo 2^64, as their differences
        hashes: NDArray[np.uint64] = np.diff(sums[self.offsets])
        return hashes


class WindowSessions(Protocol):
    """R sessions of a window, in memory or read from disk when they are needed."""

    def outline(self, before: int | None = None) -> Outline:
        """Return the outline; the head may learn to predict clicks `before` a time, or all."""

    def take(self, rows: Ints) -> Clicks:
        """Return some sessions, in the order given."""

    def hold(self, rows: Ints) -> Clicks:
        """Return some sessions, and keep in memory what a network reads of them."""

    def parts(self, rows: Ints) -> Iterator[Clicks]:
        """Yield some sessions in the order given, at most CLICKS clicks or one session at once.

        There is at least one part, which may have no session.
        """


def cut_clicks(lengths: Ints) -> list[slice]:
    """Cut rows of these lengths into parts of at most CLICKS clicks, or one row; at least one."""
    return [*cut(lengths, CLICKS)]


def _given(parts: Iterable[T | None]) -> list[T]:
    return [each for each in parts if each is not None]


def among(values: NDArray[np.integer[Any]], flags: Flags) -> Flags:
    """Whether the flag of each value is set; there may be none for it."""
    return np.asarray((values < len(flags)) & flags[np.minimum(values, len(flags) - 1)])


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Scramble 64 bits (Steele et al. 2014, "Fast splittable pseudorandom number generators")."""
    values = (values + _PRIME) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
