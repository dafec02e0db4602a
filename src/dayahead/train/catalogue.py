"""The values that a study knows of each vocabulary at a window, and pretrained vectors of items."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pyarrow as pa

from dayahead.config.model import ModelConfig
from dayahead.core.columns import FIRST_WINDOW, ITEM_ID
from dayahead.model.embeddings import (
    PretrainedRows,
    item_vectors_of_table,
    read_item_vectors,
)
from dayahead.model.inputs import vocabulary_columns
from dayahead.windows.folder import GRACE_SUFFIX, Window, WindowFolder
from dayahead.windows.metadata import has_vector


@dataclass(frozen=True)
class Catalogue:
    """The items, and the values of the categorical features that a model reads."""

    folder: WindowFolder
    config: ModelConfig

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Columns that have a vocabulary, the item id first."""
        return vocabulary_columns(self.config, self.folder.statistics)

    def sizes_at(self, window: Window) -> dict[str, int]:
        """Return the number of values that the model knows of each column at a window."""
        if self.config.catalogue == "full":
            return {column: len(self.folder.vocabulary(column)) for column in self.columns}
        return {column: self.folder.n_known(column, window) for column in self.columns}

    def known_after(self, window: Window) -> dict[str, int]:
        """Return the number of values of each column that occur in files up to the next window."""
        *_, later = self.folder.windows[: window.position + 2]  # itself, if it is the last
        return {column: self.folder.n_in_files(column, later) for column in self.columns}

    @cached_property
    def item_vectors(self) -> PretrainedRows | None:
        """Pretrained initial item vectors, where the settings name some."""
        name, dim = self.config.pretrained_items, self.config.item_dim
        if name is None:
            return None
        vocabulary, listed = self.folder.vocabulary(ITEM_ID), self.folder.first_items
        if listed is not None and has_vector(self.folder.statistics, name):
            return item_vectors_of_table(listed, name, self._drawn_at(vocabulary), dim)
        return read_item_vectors(Path(name), vocabulary, dim)

    def _drawn_at(self, vocabulary: pa.Table) -> list[str]:
        """Return at which window the embedding of each item is drawn: after a grace, the next."""
        names = [each.name for each in self.folder.windows]
        after = dict(zip((name + GRACE_SUFFIX for name in names), names[1:], strict=False))
        return [after.get(name, name) for name in vocabulary[FIRST_WINDOW].to_pylist()]
