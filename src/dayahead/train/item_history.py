"""What the train sessions of the windows so far say about each item, and the table of items."""

import numpy as np
import pyarrow.compute as pc
import torch
from jaxtyping import Int
from torch import Tensor

from dayahead.core.columns import ITEM_ID, N_RESERVED
from dayahead.core.ragged import row_of_each
from dayahead.metrics.lists import KnownItems
from dayahead.windows.folder import Window, WindowFolder


class ItemHistory:
    """Sessions with each item, and the item's newest attribute, from the window `first` on.

    `attribute` is a categorical column of the windows, or None. Values in a table of items take
    precedence over those of events.
    """

    def __init__(self, folder: WindowFolder, first: Window, attribute: str | None) -> None:
        self.folder = folder
        self.column = attribute
        self.n_windows = first.position
        """Position after the newest window that was read."""
        size = N_RESERVED + len(folder.vocabulary(ITEM_ID))
        self.n_sessions = 0
        self.sessions = np.zeros(size, np.int64)
        self.is_new = np.ones(size, bool)
        self.values = np.zeros(size, np.int64)

    def advance(self, window: Window) -> None:
        """Read the windows up to this one that were not read yet."""
        for each in self.folder.windows[self.n_windows : window.position + 1]:
            self._add(each)
        self.n_windows = max(self.n_windows, window.position + 1)

    def _add(self, window: Window) -> None:
        columns = [ITEM_ID] if self.column is None else [ITEM_ID, self.column]
        size = len(self.sessions)
        self.is_new = self.sessions == 0
        for batch in self.folder.batches(window, "train", columns):
            items = pc.list_flatten(batch[ITEM_ID]).to_numpy().astype(np.int64)
            rows = row_of_each(pc.list_value_length(batch[ITEM_ID]).to_numpy())
            self.n_sessions += len(batch)
            keys = np.sort(rows * size + items)  # np.unique hashes, which takes 70 times as long
            is_first = np.diff(keys, prepend=-1) > 0
            self.sessions += np.bincount(keys[is_first] % size, minlength=size)
            if self.column is not None:
                values = pc.list_flatten(batch[self.column]).to_numpy()
                is_known = values >= N_RESERVED
                self.values[items[is_known]] = values[is_known]  # the last event of an item counts
        self.sessions[:N_RESERVED] = 0

    @property
    def known(self) -> KnownItems:
        """Sessions with each item so far."""
        return KnownItems(self.n_sessions, self.sessions.copy(), self.is_new)

    @property
    def attribute(self) -> Int[Tensor, " I"] | None:
        """Value by catalogue index; items without one have a value of their own, below 0."""
        if self.column is None:
            return None
        values, size = self.values, len(self.values)
        before = self.folder.windows[: self.n_windows]
        table = self.folder.items_at(before[-1]) if before else None
        if table is not None and self.column in table.rows.column_names:
            values = np.where(table.is_listed(size), table.values(self.column, size), values)
        return torch.from_numpy(np.where(values >= N_RESERVED, values, -np.arange(size)))
