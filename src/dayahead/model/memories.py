"""The architecture `memory` as the protocol uses it: padded batches to rows of clicks."""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor

from dayahead.config.memory import MemoryConfig
from dayahead.core.columns import DAY, EVENT_TIME, ITEM_ID
from dayahead.core.prefixes import with_prefix
from dayahead.memory.clicks import Clicks
from dayahead.memory.model import MemoryModel
from dayahead.memory.settings import MemorySettings
from dayahead.model.baselines import Baseline
from dayahead.model.output_layer import Columns, Scorer
from dayahead.model.tasks import is_before

WINDOW = {"day": DAY, "hour": DAY // 24}
"""Microseconds."""


class MemoryRecommender(Baseline):
    """Memories of clicks joined by a head, which learns in each fit before they do.

    Args:
        config: sizes, and the training of the head.
        categories: categorical columns that are evidence besides the items.
        unit: day or hour, in which half-lives count.
        seed: of the head's initial weights and of the order of its examples.
    """

    def __init__(
        self, config: MemoryConfig, categories: tuple[str, ...], unit: str, seed: int
    ) -> None:
        super().__init__()
        self.categories = categories
        settings = MemorySettings(config=config, unit=WINDOW[unit], columns=categories, seed=seed)
        self.memory = MemoryModel(settings)
        self._end = 0
        self._new: list[Clicks] = []

    def grow(self, sizes: Mapping[str, int]) -> None:
        """Extend the memories to the first `sizes[item_id]` items of the catalogue."""
        super().grow(sizes)
        self.memory.grow(self.n_items)

    def start_window(self, end: int) -> None:
        """Reset the popularity. The window ends at `end`, microseconds since 1970."""
        super().start_window(end)
        self._end = end

    def count(self, columns: Columns, lengths: Int[Tensor, " B"]) -> None:
        """Collect train sessions: right-padded columns [B, L]."""
        super().count(columns, lengths)
        self._new.append(self._clicks(columns, lengths))

    def finish_window(self) -> float | None:
        """Fit the head on the window's sessions, then add them to the memories.

        Returns:
            The head's mean loss, None where there was nothing to learn from.
        """
        sessions = Clicks.cat(self._new, len(self.categories))
        self._new.clear()
        return self.memory.fit(sessions, self._end)

    def state_dict(self) -> dict[str, Tensor]:
        """Popularity, the memories, the head and the state of its training."""
        memory = {f"memory.{name}": each for name, each in self.memory.state_dict().items()}
        return super().state_dict() | memory

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Replace all of it."""
        super().load_state_dict(state)
        self.memory.load_state_dict(with_prefix(state, "memory."))

    def scorer(self, candidates: Int[Tensor, " C"]) -> Scorer:
        """Return a function that scores the candidates (vocabulary indices)."""
        wanted = candidates.cpu().numpy()

        def scores(columns: Columns, n_known: Int[Tensor, " B"]) -> Float[Tensor, "B C"]:
            return self.memory.scores(self._clicks(columns, n_known), wanted)

        return scores

    def explain(self, columns: Columns, n_known: Int[Tensor, " 1"], item: int) -> dict[str, float]:
        """Split an item's lead over the mean candidate of one session among the named features.

        Empty where the head does not rank the item (a vocabulary index).
        """
        return self.memory.explain(self._clicks(columns, n_known), item)

    def _clicks(self, columns: Columns, lengths: Int[Tensor, " B"]) -> Clicks:
        """Return the events of padded sessions row after row."""
        is_event = is_before(lengths, columns[ITEM_ID]).cpu()
        items, times, *categories = (
            columns[name].cpu()[is_event].numpy()
            for name in (ITEM_ID, EVENT_TIME, *self.categories)
        )
        values = np.array(categories, np.int64).reshape(len(categories), len(items)).T
        offsets = np.concatenate([[0], np.cumsum(lengths.cpu().numpy())])
        return Clicks(items, times, values, offsets)
