"""The lists that a model shows in a window: counted while targets are ranked, then summed up."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dayahead.config.metric_names import OF_LISTS
from dayahead.config.params import EvaluationConfig
from dayahead.core.indices import union
from dayahead.core.phases import in_phase
from dayahead.distributed.process import Process
from dayahead.metrics.lists import (
    Figures,
    KnownItems,
    Shown,
    click_figures,
    figure_names,
    list_figures,
    repeats,
)
from dayahead.metrics.packaged import packaged_figure
from dayahead.outputs.lists import ListRow
from dayahead.train.item_history import ItemHistory
from dayahead.train.likeness import Cosine, Likeness, SameValue
from dayahead.train.list_counts import WindowLists
from dayahead.windows.folder import Window, WindowFolder
from dayahead.windows.metadata import has_vector


@dataclass(frozen=True)
class EvaluatedLists:
    """What the lists of a window show; the figures at any cutoff follow from it."""

    shown: Shown
    n_items: int
    """Items that a list could show."""
    by_length: Mapping[str, Sequence[float | None]]
    """Metrics of the first 1, 2, ... items of each list, by name."""
    clicked: Figures
    """Metrics of what users click."""

    @classmethod
    def of(
        cls, shown: Shown, clicked: Shown, known: KnownItems, candidates: NDArray[np.int32]
    ) -> "EvaluatedLists":
        """Compute the figures; there is at least one list, with at least one item."""
        n_items = len(union(candidates, shown.items))
        clicks = click_figures(clicked, known)
        every = [list_figures(shown, k, known, n_items) for k in range(1, shown.length + 1)]
        for figures in every:
            own, of_clicks = figures["popularity"], clicks["popularity"]
            figures["popularity_ratio"] = own / of_clicks if own is not None and of_clicks else None
        by_length = {name: [each[name] for each in every] for name in every[0]}
        return cls(shown, n_items, by_length, clicks)

    def row(self, window: str, names: Sequence[str], before: "EvaluatedLists | None") -> ListRow:
        """Return its row of lists.csv; `before` is the window evaluated before it."""
        figures = {f"clicked_{name}": value for name, value in self.clicked.items()}
        for name in names:
            metric, _, k = name.partition("_at_")
            if metric == "repeats":
                value = None if before is None else repeats(self.shown, before.shown, int(k))
                figures[name] = value
            elif metric in OF_LISTS:
                figures[name] = self.by_length[metric][min(int(k), self.shown.length) - 1]
            elif k:
                figures[name] = packaged_figure(metric, self.shown, int(k), self.n_items)
        return ListRow(
            window, self.shown.n_lists, self.n_items, {name: figures[name] for name in names}
        )

    def as_json(self) -> dict[str, Any]:
        """Return all but what is shown, which has a table of its own."""
        return {"n_items": self.n_items, "by_length": self.by_length, "clicked": self.clicked}


class ListEvaluation:
    """Counts the lists of the windows of a run, as evaluation.lists says; `first` is its first one.

    Raises:
        ConfigError: evaluation.diversity_by is neither a categorical feature of the windows nor a
            vector of their items.
    """

    def __init__(
        self, folder: WindowFolder, config: EvaluationConfig, first: Window, process: Process
    ) -> None:
        self.length = config.lists
        self.folder = folder
        self.process = process
        self.by = config.diversity_by if config.lists else None
        column = None
        if self.by is not None and not has_vector(folder.statistics, self.by):
            column = folder.categorical_column(self.by, "evaluation.diversity_by")
        self.history = ItemHistory(folder, first, column)

    @in_phase("lists")
    def start(self, fitted: Window, n_candidates: int) -> WindowLists | None:
        """Return counts of the lists after the fit of a window; None where there are no lists."""
        length = min(self.length, n_candidates)
        if not length:
            return None
        self.history.advance(fitted)
        return WindowLists(length, self._likeness(fitted), self.process)

    def _likeness(self, fitted: Window) -> Likeness | None:
        """Return how alike items are by evaluation.diversity_by, as known after a window's fit."""
        device, attribute = self.process.device, self.history.attribute
        if attribute is not None:
            return SameValue(attribute.to(device))
        if self.by is None:
            return None
        table = self.folder.items_at(fitted)
        assert table is not None
        vectors = table.vectors(self.by, len(self.history.sessions))
        return Cosine(torch.from_numpy(vectors).to(device))

    @in_phase("lists")
    def finish(
        self, lists: WindowLists | None, candidates: NDArray[np.int32]
    ) -> EvaluatedLists | None:
        """Sum up the lists of all processes; a collective. `candidates` are those at the end.

        None where there are no lists, or no candidate at some time.
        """
        if lists is None or lists.length == 0:
            return None
        shown, clicked = lists.shown.joined(), lists.clicked.joined()
        return EvaluatedLists.of(shown, clicked, self.history.known, candidates)


def names_of(config: EvaluationConfig) -> list[str]:
    """Return the names of the figures in lists.csv; none where evaluation.lists is 0."""
    if not config.lists:
        return []
    return figure_names(config.cutoffs, config.lists, config.list_metrics)
