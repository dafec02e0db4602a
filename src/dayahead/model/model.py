"""What a run fits, evaluates, saves and serves: a network, memory or a baseline."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from dayahead.core.columns import IS_PAST, ITEM_ID, N_RESERVED, WORTH
from dayahead.core.errors import ConfigError
from dayahead.distributed.sharding import WHOLE, Shard
from dayahead.model.output_layer import Columns, Scorer
from dayahead.model.own_items import SessionScorer, with_own_items
from dayahead.model.state_rules import COUNTS, Limits, Rows
from dayahead.model.tasks import is_before
from dayahead.windows.items import ItemTable

if TYPE_CHECKING:
    from dayahead.memory.model import MemoryModel
    from dayahead.model.next_item import NextItemModel

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Padded = tuple[Columns, Int[Tensor, " B"]]
"""Right-padded columns [B, L] of sessions, the times in microseconds, and their lengths."""
ReadSessions = Callable[[Ints, bool], Iterable[Padded]]
"""Reads some of a window's sessions again, by their place in the order of counting, and holds them
in memory if wanted."""
PairScorer = Callable[[Ints], Floats]
"""From items [Q], vocabulary indices, to how near each is to all of the catalogue [Q, n_items];
0 where nothing was counted."""
POPULARITY, ENDS = "popularity", "session_ends"
"""Names of tensors in model.safetensors."""


def associations(counts: Floats, own: Floats, totals: Floats) -> Floats:
    """Return counts [Q, n] of pairs relative to the root of both items' totals, [Q] and [n].

    Without this scaling popular items would be near to all (the cosine of Sarwar et al., WWW 2001,
    where the counts are those of sessions that hold both).
    """
    scales = np.sqrt(own[:, None] * totals)
    return np.divide(counts, scales, out=np.zeros(counts.shape), where=scales > 0)


class Model(ABC):
    """Scores items after session prefixes.

    It is built without items; `grow` adds them. `train.trainer_registry` chooses its trainer.
    """

    shard: Shard = WHOLE
    """Which rows of the item tables this process holds."""
    read_by_fits_alone: tuple[str, ...] = ()
    """Prefixes of the tensors of `state_dict` that only further fits read."""

    tick: int = 0
    """Microseconds between two counts of a window that is followed; 0: the model changes only when
    it is fitted."""

    vectors: tuple[str, ...] = ()
    """Names of the vectors of items that the model reads, of the data set's table."""

    has_named_features = False
    """Whether `explain` can say what raises a score."""

    pairs_are = ""
    """What `pair_scorer` compares items by; empty where the model counts no pairs."""

    @property
    def sharded(self) -> frozenset[str]:
        """Names of the tensors of `state_dict` whose rows are sharded."""
        return frozenset()

    @property
    def network(self) -> "NextItemModel | None":
        """The network: the model itself, a part of it, or none."""
        return None

    @property
    def counter(self) -> "MemoryModel | None":
        """The part that counts clicks as they come, where there is a tick."""
        return None

    @property
    @abstractmethod
    def n_items(self) -> int:
        """Items in the catalogue."""

    @abstractmethod
    def grow(self, sizes: Mapping[str, int]) -> None:
        """Add the first `sizes[column]` values of each vocabulary."""

    def know_items(self, table: ItemTable | None, *, with_new: bool = True) -> None:  # noqa: B027
        """Read what a table says about items from now on; None: there is no table.

        `with_new` says whether items without a click may be recommended. It is no part of the
        state: who loads a state gives the table too.
        """

    def follow(  # noqa: B027
        self,
        sizes: Mapping[str, int],
        sessions: Iterable[Padded],
        end: int,
        *,
        to_fit: bool = True,
    ) -> None:
        """Start to count a window before it is fitted on, where there is a tick.

        Args:
            sizes: number of values of each vocabulary at the window.
            sessions: its train sessions.
            end: of the window, microseconds since 1970.
            to_fit: whether the model is fitted on the window after it has counted it. If not, the
                sessions may be of several windows after the last fit.
        """

    def advance(self, until: int) -> None:  # noqa: B027
        """Count the clicks before `until`, a tick, of the window that is followed."""

    def rewind(self) -> None:  # noqa: B027
        """Return to the state after the last fit."""

    @property
    def counted_items(self) -> Ints:
        """Items counted so far where there is a tick, ascending vocabulary indices."""
        return np.zeros(0, np.int64)

    @abstractmethod
    def state_dict(self) -> dict[str, Tensor]:
        """Return the whole state, learned or counted, by tensor name."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Tensor]) -> Any:  # noqa: ANN401
        """Replace the whole state; `grow` has been called with the sizes of its catalogue.

        Raises:
            ModelFileError: the state does not belong to this model.
        """

    def row_rules(self) -> Iterable[Rows]:
        """Return which arrays of a state must have equally many rows, and their valid values."""
        return ()

    def limits(self) -> Mapping[str, Limits]:
        """Return the limits of the values in the other arrays of a state."""
        return {}

    def optional_tensors(self) -> Mapping[str, Tensor]:
        """Return examples of tensors that a state may have though `state_dict` lacks them now."""
        return {}

    @abstractmethod
    def scorer(self, candidates: Int[Tensor, " C"], *, overwrites: bool = False) -> Scorer:
        """Return a function that scores the candidates (vocabulary indices), until the next fit.

        If it `overwrites`, its scores are valid until the next call.
        """

    def session_scorer(
        self, candidates: Int[Tensor, " C"], *, overwrites: bool = False
    ) -> SessionScorer:
        """Return a function that scores candidates and each session's own items.

        Arguments are those of `scorer`; the candidates ascend.
        """
        return with_own_items(self.scorer(candidates, overwrites=overwrites), candidates)

    def explain(
        self, columns: Columns, n_known: Int[Tensor, " 1"], items: Ints, candidates: Ints
    ) -> list[dict[str, float]]:
        """Split items' leads over the mean candidate of one session among named features.

        `candidates` are those of `scorer`. Empty where an item is not ranked by them, as of every
        model without named features.
        """
        return [{} for _ in items]

    def pair_scorer(self) -> PairScorer:
        """Return a function that says how near items are to all others, until the next fit.

        Raises:
            ConfigError: the model has no pairs of items.
        """
        raise ConfigError(
            f"{type(self).__name__} counts no pairs of items; compare items by the vectors of a "
            f"network, or by a model such as transitions"
        )

    def evidence(self) -> dict[str, float]:
        """Return the weights of named features, where there are any."""
        return {}


class CountingModel(Model):
    """A model that counts each window once: `start_window`, `count` of batches, `finish_window`."""

    read: ReadSessions | None = None
    """Reads the sessions counted in this window again; None where these are in memory anyway."""

    def __init__(self) -> None:
        self.popularity = np.zeros(0, np.float64)
        """[n_items] events in the windows of the last fit."""
        self.ends = np.zeros(2, np.int64)
        """Number of sessions of all fits, and of those that end with an item they already had."""

    @property
    def n_items(self) -> int:
        """Items in the catalogue."""
        return len(self.popularity)

    def grow(self, sizes: Mapping[str, int]) -> None:
        """Extend the counts to the first `sizes[item_id]` items of the catalogue."""
        self.popularity = np.pad(self.popularity, (0, sizes[ITEM_ID] - self.n_items))

    def start_window(self, end: int) -> None:
        """Reset the popularity. The window ends at `end`, microseconds since 1970."""
        self.popularity[:] = 0

    def count(self, columns: Columns, lengths: Int[Tensor, " B"]) -> None:
        """Count train sessions: right-padded columns [B, L], the times in microseconds.

        An event counts 1, or what the column WORTH says.
        """
        is_event = is_before(lengths, columns[ITEM_ID])
        events = columns[ITEM_ID][is_event].numpy() - N_RESERVED
        worth = columns[WORTH][is_event].double().numpy() if WORTH in columns else None
        self.popularity += np.bincount(events, worth, minlength=self.n_items)
        self.count_ends(columns, lengths)

    def count_ends(self, columns: Columns, lengths: Int[Tensor, " B"]) -> None:
        """Count the sessions that end with an item they already had; the past does not count."""
        items = columns[ITEM_ID]
        last = items.gather(1, lengths[:, None] - 1)
        is_repeated = (items == last) & is_before(lengths - 1, items)
        if IS_PAST in columns:
            is_repeated &= columns[IS_PAST] != 1
        self.ends += (len(lengths), int(is_repeated.any(1).sum()))

    def finish_window(self) -> float | None:
        """Add what was counted to the counts of earlier windows; return the loss, if any."""
        return None

    def state_dict(self) -> dict[str, Tensor]:
        """Return everything counted, by tensor name."""
        return {POPULARITY: torch.from_numpy(self.popularity), ENDS: torch.from_numpy(self.ends)}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Replace the catalogue and all counts."""
        self.popularity, self.ends = (state[name].numpy() for name in (POPULARITY, ENDS))

    def limits(self) -> Mapping[str, Limits]:
        """Return the limits of the counts."""
        return {POPULARITY: COUNTS, ENDS: COUNTS}
