"""Items like an item: by the vectors of a network, or by the pairs of items that a model counts."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import pyarrow as pa
import torch
from jaxtyping import Float, Float32, Int
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from dayahead.core.columns import ITEM_ID, N_RESERVED, VALUE
from dayahead.core.errors import ConfigError, DataError
from dayahead.core.suggestions import did_you_mean
from dayahead.metrics.ranking import top_columns
from dayahead.model.model import Ints
from dayahead.model.output_layer import rows_per_chunk
from dayahead.serve.ranking import SCORES_MIB
from dayahead.serve.recommender import Recommendation, Recommender
from dayahead.serve.request import ItemIds, Options

By = Literal["vectors", "pairs"]
Scores = Callable[[Ints], Float32[Tensor, "Q C"]]
"""From vocabulary indices to how near the candidates are; -inf of those that do not come back."""
N_COMPARED = 5_000
"""Number of items, the most clicked ones, among which a mistyped id is looked for."""


@dataclass(frozen=True)
class SimilarItems:
    """Finds the items most like another one, for a saved model.

    A network compares items by the cosine of the vectors by which it reads them. A model that
    counts compares them by the pairs of its sessions; `memory` with a network can do both.
    """

    recommender: Recommender

    def kind(self, by: By | None = None) -> By:
        """Return what items are compared by; by default pairs where the model counts them.

        Raises:
            ConfigError: the model has no such thing.
        """
        model = self.recommender.stored.model
        found: list[By] = ["pairs"] if model.pairs_are else []
        found += ["vectors"] if model.network is not None else []
        if by in found or (by is None and found):
            return by or found[0]
        name = self.recommender.stored.config.model.architecture
        has = f"compares items by {found[0]}" if found else "has neither vectors nor pairs of items"
        cure = f"leave out --by {by}" if found else "use a network, memory or transitions"
        raise ConfigError(f"similar: {name} {has}; {cure}")

    def description(self, by: By | None = None) -> str:
        """Say in words what items are compared by."""
        model = self.recommender.stored.model
        if self.kind(by) == "pairs":
            return f"pairs: {model.pairs_are}"
        config = self.recommender.stored.config.model
        name = config.architecture if model.network is model else config.network
        return f"vectors: cosine of the item vectors of {name}"

    def find(
        self, items: ItemIds, options: Options, by: By | None = None
    ) -> list[list[Recommendation]]:
        """Return the items most like each of some raw item ids, best first, with their scores.

        Of equal scores the item that is older in the catalogue comes first. By pairs, only items
        come back that were seen with the item. The item itself never does.

        Args:
            items: raw ids of items that the model was fitted on.
            options: `top_k`, `allow`, `deny` and `where`; the others are for sessions.
            by: what items are compared by, see `kind`.

        Raises:
            ConfigError: the model has no such thing.
            DataError: an id is not of the data set's type, or the model does not know it.
        """
        scorer = self._by_pairs if self.kind(by) == "pairs" else self._by_vectors
        indices = self._known_indices(items)
        is_out = torch.from_numpy(self.recommender.named(options).is_left_out(self._candidates))
        n_rows = rows_per_chunk(len(self._candidates), SCORES_MIB)
        found: list[list[Recommendation]] = []
        for start in range(0, len(indices), n_rows):
            part = indices[start : start + n_rows]
            is_own = torch.from_numpy(part[:, None] == self._candidates)
            scores = scorer(part).masked_fill(is_out | is_own, -torch.inf)
            columns, best = top_columns(scores, options.top_k)
            found += self._listed(columns, best)
        return found

    def _listed(
        self, columns: Int[Tensor, "Q K"], scores: Float[Tensor, "Q K"]
    ) -> list[list[Recommendation]]:
        known = self.recommender.stored.vocabularies[ITEM_ID][VALUE]
        ids = known.take(pa.array((self._candidates[columns.numpy()] - N_RESERVED).ravel()))
        rows = np.reshape(np.array(ids.to_pylist(), object), columns.shape).tolist()
        return [
            [(item, score) for item, score in zip(*row, strict=True) if score > -np.inf]
            for row in zip(rows, scores.tolist(), strict=True)
        ]

    def _known_indices(self, items: ItemIds) -> NDArray[np.int64]:
        column = self.recommender.item_column(items)
        indices = self.recommender.encoder.item_indices(pa.chunked_array([column]))
        is_unknown = self.recommender.is_unknown(indices)
        if is_unknown.any():
            first = int(np.flatnonzero(is_unknown)[0])
            raise DataError(self._unknown(column[first].as_py(), int(indices[first])))
        return indices.astype(np.int64)

    def _unknown(self, item: int | str, index: int) -> str:
        stored = self.recommender.stored
        if index >= N_RESERVED:
            return (
                f"item {item}: it is in the log only after {stored.config.window}, the last window "
                f"that the model was fitted on; fit a model on later windows"
            )
        often = np.argsort(-self.recommender.popularity, kind="stable")[:N_COMPARED]
        rows = pa.array(stored.candidates[often] - N_RESERVED)
        texts = [str(each) for each in stored.vocabularies[ITEM_ID][VALUE].take(rows).to_pylist()]
        suggestion = did_you_mean(str(item), texts)
        return (
            f"item {item}: the model does not know it; "
            f"{suggestion or 'expected an id of the data set, such as ' + ', '.join(texts[:2])}"
        )

    @cached_property
    def _candidates(self) -> NDArray[np.int32]:
        """[C] vocabulary indices of the items that the model knows and may recommend."""
        candidates = self.recommender.stored.candidates_at(self.recommender.now)
        return candidates[~self.recommender.is_unknown(candidates)]

    @cached_property
    def _by_pairs(self) -> Scores:
        scorer = self.recommender.stored.model.pair_scorer()
        columns = self._candidates - N_RESERVED

        def scores(items: Ints) -> Float32[Tensor, "Q C"]:
            found = torch.from_numpy(scorer(items)[:, columns].astype(np.float32))
            return found.masked_fill(found == 0, -torch.inf)

        return scores

    @cached_property
    def _by_vectors(self) -> Scores:
        network = self.recommender.stored.model.network
        assert network is not None
        vectors, candidates = network.item_vectors, self._candidates - N_RESERVED
        # Items that came after the last fit are counted by a live model, and have no vector.
        is_held = candidates < len(vectors)
        columns = torch.from_numpy(np.flatnonzero(is_held))
        table = normalize(vectors[torch.from_numpy(candidates[is_held]).long()])  # [C', d]

        def scores(items: Ints) -> Float32[Tensor, "Q C"]:
            rows = torch.from_numpy(items - N_RESERVED)
            if (rows >= len(vectors)).any():
                raise DataError(
                    "an item is newer than the last fit, and the network has no vector of it; "
                    "compare by pairs"
                )
            found = torch.full((len(items), len(candidates)), -torch.inf)
            found[:, columns] = normalize(vectors[rows]) @ table.T
            return found

        return scores
