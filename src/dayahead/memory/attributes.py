"""Attribute memory: what each item's attributes were last, compared with those of the prefix."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from dayahead.core.columns import N_RESERVED
from dayahead.memory.clicks import Clicks, Floats, Floats32, Ints
from dayahead.memory.evidence import CandidateBatch, Memory
from dayahead.memory.growth import Growth
from dayahead.memory.pairs import REACH
from dayahead.memory.settings import MemorySettings

KINDS = ("last", "share")
"""Whether the prefix's last click has the candidate's value; the share of its clicks that have it,
weighted by 1 / their position from the end."""


class AttributeMemory(Memory):
    """The newest value of each attribute of each item; 0 where none was seen."""

    name = "attributes"

    def __init__(self, settings: MemorySettings) -> None:
        self.columns = [settings.columns.index(name) for name in settings.attributes]
        """Positions of the attributes among the categorical columns."""
        self.names = tuple(
            f"attribute.{name}.{kind}" for name in settings.attributes for kind in KINDS
        )
        self.values = np.zeros((N_RESERVED, len(self.columns)), np.int32)
        """[n, A] indices into the vocabularies; n is the catalogue's size with reserved indices."""

    def grow(self, n_items: int) -> None:
        """Extend the values to a catalogue of `n_items`."""
        self.values = np.pad(self.values, ((0, n_items + N_RESERVED - len(self.values)), (0, 0)))

    def add(self, growth: Growth, _ages: Floats, _elapsed: float) -> None:
        """Take over the values of new clicks; of an item's, those of the latest click."""
        sessions = growth.sessions
        [clicks] = (growth.is_new & (sessions.items >= N_RESERVED)).nonzero()
        clicks = clicks[np.argsort(sessions.times[clicks], kind="stable")]
        values = self.values.copy()  # a state may share the old ones
        for attribute, column in enumerate(self.columns):
            found = sessions.categories[clicks, column]
            is_given = found >= N_RESERVED
            # The last of several assignments to an item is the one that stays.
            values[sessions.items[clicks[is_given]], attribute] = found[is_given]
        self.values = values

    def features(self, batch: CandidateBatch) -> Floats32:
        """Return the matches of the candidates [B, C, 2 A]."""
        values = self.values
        if batch.content is not None:  # a table of items precedes what clicks said
            listed = batch.content.attributes
            values = np.where(listed >= 0, listed, values)
        values, latest = values[batch.candidates], self._latest(batch.prefixes)
        weights = (latest >= N_RESERVED) / np.arange(1, latest.shape[1] + 1)[:, None]  # [B, L, A]
        shares = np.zeros(values.shape)
        for step in range(latest.shape[1]):
            shares += (values == latest[:, step, None]) * weights[:, step, None]
        shares /= np.maximum(weights.sum(1), 1e-9)[:, None]
        is_last = (values == latest[:, :1]) & (values >= N_RESERVED)
        both: Floats32 = np.stack([is_last, shares], axis=-1).astype(np.float32)
        return both.reshape(*batch.candidates.shape, len(self.names))

    def _latest(self, rows: Clicks) -> Ints:
        """Return the values of each row's last clicks [B, L, A], the last one first, 0 for none."""
        steps = np.arange(min(REACH, rows.lengths.max(initial=1)))
        is_click = steps < rows.lengths[:, None]
        # Index -1 reads the zeros that are appended to the values below.
        clicks = np.where(is_click, rows.last[:, None] - steps, -1)
        return np.asarray(np.pad(rows.categories[:, self.columns], ((0, 1), (0, 0)))[clicks])

    def state_dict(self) -> dict[str, Tensor]:
        """The values, int32 [n, A]."""
        return {"values": torch.from_numpy(self.values)}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Replace the values."""
        self.values = state["values"].numpy().copy()
