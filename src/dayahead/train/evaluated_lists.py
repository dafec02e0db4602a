"""The lists that a model shows in a window: counted while targets are ranked, then summed up."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from dayahead.config.params import EvaluationConfig
from dayahead.core.columns import ITEM_ID, N_RESERVED
from dayahead.core.indices import union
from dayahead.core.phases import in_phase
from dayahead.core.ragged import row_of_each
from dayahead.distributed.process import Process
from dayahead.metrics.lists import KnownItems, Shown, figure_names, list_figures
from dayahead.outputs.lists import ListRow
from dayahead.train.list_counts import ListCounts
from dayahead.windows.folder import Window, WindowFolder


@dataclass(frozen=True)
class EvaluatedLists:
    """What the lists of a window show; the figures at any cutoff follow from it."""

    n_lists: int
    n_items: int
    """Items that a list could show."""
    by_length: Mapping[str, Sequence[float]]
    """Metrics of the first 1, 2, ... items of each list, by name."""

    @classmethod
    def of(cls, shown: Shown, known: KnownItems, candidates: NDArray[np.int32]) -> "EvaluatedLists":
        """Compute the figures; there is at least one list, with at least one item."""
        n_items = len(union(candidates, shown.items))
        every = [list_figures(shown, k, known, n_items) for k in range(1, shown.length + 1)]
        return cls(
            shown.n_lists, n_items, {name: [each[name] for each in every] for name in every[0]}
        )

    def row(self, window: str, names: Sequence[str]) -> ListRow:
        """Return its row of lists.csv."""
        figures = {}
        for name in names:
            metric, _, k = name.partition("_at_")
            values = self.by_length[metric]
            figures[name] = values[min(int(k), len(values)) - 1]
        return ListRow(window, self.n_lists, self.n_items, figures)


class ListEvaluation:
    """Counts the lists of the windows of a run, the first of which is `first`."""

    def __init__(
        self, folder: WindowFolder, config: EvaluationConfig, first: Window, process: Process
    ) -> None:
        self.length = config.lists
        self.folder = folder
        self.process = process
        self.n_windows = first.position
        """Position after the newest window whose train sessions were counted."""
        size = N_RESERVED + len(folder.vocabulary(ITEM_ID))
        self.n_sessions = 0
        self.sessions = np.zeros(size, np.int64)
        self.is_new = np.ones(size, bool)

    @in_phase("lists")
    def start(self, fitted: Window, n_candidates: int) -> ListCounts | None:
        """Return counts of the lists after the fit of a window; None where there are no lists."""
        length = min(self.length, n_candidates)
        if not length:
            return None
        for window in self.folder.windows[self.n_windows : fitted.position + 1]:
            self._add(window)
        self.n_windows = max(self.n_windows, fitted.position + 1)
        return ListCounts(length, self.process)

    def _add(self, window: Window) -> None:
        """Count the train sessions of a window that have each item."""
        size = len(self.sessions)
        self.is_new = self.sessions == 0
        for batch in self.folder.batches(window, "train", [ITEM_ID]):
            items = pc.list_flatten(batch[ITEM_ID]).to_numpy().astype(np.int64)
            rows = row_of_each(pc.list_value_length(batch[ITEM_ID]).to_numpy())
            self.n_sessions += len(batch)
            keys = np.sort(rows * size + items)  # np.unique hashes, which takes 70 times as long
            is_first = np.diff(keys, prepend=-1) > 0
            self.sessions += np.bincount(keys[is_first] % size, minlength=size)
        self.sessions[:N_RESERVED] = 0

    @in_phase("lists")
    def finish(
        self, lists: ListCounts | None, candidates: NDArray[np.int32]
    ) -> EvaluatedLists | None:
        """Sum up the lists of all processes; a collective. `candidates` are those at the end.

        None where there are no lists, or no candidate at some time.
        """
        if lists is None or lists.length == 0:
            return None
        known = KnownItems(self.n_sessions, self.sessions, self.is_new)
        return EvaluatedLists.of(lists.joined(), known, candidates)


def names_of(config: EvaluationConfig) -> list[str]:
    """Return the names of the figures in lists.csv; none where evaluation.lists is 0."""
    return figure_names(config.cutoffs, config.lists) if config.lists else []
