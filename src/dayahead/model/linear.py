"""Linear item-item models in closed form: SLIS, SLIT and SLIST (Choi et al., WWW 2021)."""

from collections.abc import Iterable, Mapping

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.linalg import solve
from scipy.sparse import csr_array, diags_array, vstack
from torch import Tensor

from dayahead.config.baselines import LinearConfig
from dayahead.config.model import ModelSections
from dayahead.core.columns import DAY, EVENT_TIME, ITEM_ID, N_RESERVED
from dayahead.model.counting import Baseline
from dayahead.model.model import Floats, Ints, PairScorer
from dayahead.model.output_layer import Columns, Scorer
from dayahead.model.state_rules import COUNTS, TIMES, Limits, Rows

FLOOR = 1e-6
"""Aged sums of products below this are dropped."""
SHARES = {"slis": 1.0, "slit": 0.0}


class LinearModel(Baseline):
    """Scores items by a matrix of item weights, which ridge regression fits.

    slis   predicts the items of a session from the same items
    slit   predicts the later items of a session from the earlier ones, at each of its positions
    slist  minimizes a weighted sum of both losses

    Products of sessions of all fits are kept; their weight falls by a factor e in `age_scale` days.
    The paper's optional bound on the diagonal is left out.
    Items without a positive score rank below, by popularity.
    """

    def __init__(self, config: LinearConfig, variant: str) -> None:
        super().__init__()
        self.config = config
        self.pairs_are = f"weights of {variant}, from the item to the other"
        self.share = SHARES.get(variant, config.similarity_share)
        """Weight of SLIS in the loss."""
        self.gram = csr_array((0, 0), dtype=np.float64)
        """[n_items, n_items] sum of inputs times inputs."""
        self.cross = csr_array((0, 0), dtype=np.float64)
        """[n_items, n_items] sum of inputs times targets."""
        self.end = 0
        """End of the newest window, microseconds since 1970."""
        self._new: list[tuple[csr_array, csr_array, Ints]] = []

    @classmethod
    def build(cls, settings: ModelSections) -> "LinearModel":
        """Build it from its settings."""
        return cls(settings.linear, settings.model.architecture)

    def grow(self, sizes: Mapping[str, int]) -> None:
        """Extend the matrices to the first `sizes[item_id]` items of the catalogue."""
        super().grow(sizes)
        for matrix in (self.gram, self.cross):
            matrix.resize((self.n_items, self.n_items))

    def start_window(self, end: int) -> None:
        """Reset the popularity and let the products age until the window's end."""
        super().start_window(end)
        kept = self._age(end - self.end)
        self.gram, self.cross, self.end = _aged(self.gram, kept), _aged(self.cross, kept), end

    def count(self, columns: Columns, lengths: Int[Tensor, " B"]) -> None:
        """Count train sessions: right-padded columns [B, L]."""
        super().count(columns, lengths)
        items, ends = (columns[ITEM_ID] - N_RESERVED).numpy(), lengths.numpy()
        times = columns[EVENT_TIME][:, 0].numpy()
        if self.share > 0:
            # The root, because both factors of a product are scaled.
            whole = self._whole_sessions(items, ends) * np.sqrt(self.share)
            self._new.append((whole, whole, times))
        if self.share < 1:
            before, after, sessions = self._split_sessions(items, ends)
            share = np.sqrt(1 - self.share)
            self._new.append((before * share, after * share, times[sessions]))

    def _whole_sessions(self, items: Ints, ends: Ints) -> csr_array:
        """Return a row per session: its different items, with weights that sum to 1."""
        rows, steps = np.nonzero(np.arange(items.shape[1]) < ends[:, None])
        found = self._rows(np.ones(len(rows)), rows, items[rows, steps], len(items))
        # Events of the same item were summed; each item counts once.
        found.data[:] = 1
        return _normalized(found)

    def _split_sessions(self, items: Ints, ends: Ints) -> tuple[csr_array, csr_array, Ints]:
        """Split sessions before each event but the first: the items before, those after.

        Weights fall with the distance from the split, and sum to 1 on each side. The third result
        is the session of each row.
        """
        steps = np.arange(items.shape[1])
        sessions, splits = np.nonzero((steps > 0) & (steps < ends[:, None]))
        distances = steps - splits[:, None]  # [R, L]
        is_before, is_after = distances < 0, (distances >= 0) & (steps < ends[sessions, None])
        sides = []
        for is_side, distance in ((is_before, -1 - distances), (is_after, distances)):
            rows, at = np.nonzero(is_side)
            weights = np.exp(-distance[rows, at] / self.config.train_scale)
            side = self._rows(weights, rows, items[sessions[rows], at], len(sessions))
            sides.append(_normalized(side))
        return sides[0], sides[1], sessions

    def _rows(self, weights: Floats, rows: Ints, items: Ints, n_rows: int) -> csr_array:
        return csr_array((weights, (rows, items)), shape=(n_rows, self.n_items))

    def finish_window(self) -> float | None:
        """Add the window's sessions to the products of the earlier ones."""
        if not self._new:
            return None
        inputs, targets = (vstack([part[side] for part in self._new]) for side in (0, 1))
        times = np.concatenate([part[2] for part in self._new])
        self._new.clear()
        # Sorted by time and content: sums are then rounded alike in whatever batches they came.
        numbers = np.arange(1.0, self.n_items + 1)
        order = np.lexsort((inputs @ numbers, targets @ numbers, times))
        inputs, targets, times = inputs.tocsr()[order], targets.tocsr()[order], times[order]
        weighted = (diags_array(self._age(self.end - times)) @ inputs).T
        self.gram = self.gram + (weighted @ inputs).tocsr()
        self.cross = self.cross + (weighted @ targets).tocsr()
        return None

    def _age(self, ages: Ints | int) -> Floats:
        """Weight of sessions by their ages, microseconds."""
        return np.asarray(np.exp(-np.asarray(ages) / (self.config.age_scale * DAY)))

    def state_dict(self) -> dict[str, Tensor]:
        """Popularity, both products as compressed rows, and the end of the newest window."""
        arrays = {"end": np.array([self.end])}
        for name in ("gram", "cross"):
            matrix = getattr(self, name)
            parts = {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr}
            arrays |= {f"{name}.{part}": array for part, array in parts.items()}
        return super().state_dict() | {n: torch.from_numpy(each) for n, each in arrays.items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Replace the catalogue and all products."""
        super().load_state_dict(state)
        self.end = int(state["end"])
        for name in ("gram", "cross"):
            parts = (state[f"{name}.{part}"].numpy() for part in ("data", "indices", "indptr"))
            setattr(self, name, csr_array(tuple(parts), shape=(self.n_items, self.n_items)))

    def row_rules(self) -> Iterable[Rows]:
        """Return the rules of both products."""
        for name in ("gram", "cross"):
            indices, data = f"{name}.indices", f"{name}.data"
            limits = {indices: (0, self.n_items - 1), data: COUNTS}
            yield Rows((indices, data), limits, offsets=f"{name}.indptr", has_any_integers=True)

    def limits(self) -> Mapping[str, Limits]:
        """Return the limits of the counts and of the time."""
        return {**super().limits(), "end": TIMES}

    def weights(self) -> tuple[Ints, Floats]:
        """Fit the matrix of weights; return the n items that it models, ascending, and the matrix.

        These are the items with the largest totals in inputs and targets. The matrix is [n, n],
        from the row item to the column item.
        """
        mass = self.cross.sum(axis=0) + self.cross.sum(axis=1)
        # The dense system takes time cubic in the number of items, hence the limit.
        items = np.sort(np.argsort(-mass, kind="stable")[: self.config.n_items])
        items = items[mass[items] > 0]
        gram, cross = (each[items][:, items].toarray() for each in (self.gram, self.cross))
        gram[np.diag_indices_from(gram)] += self.config.regularization
        return items, solve(gram, cross, assume_a="pos") if len(items) else gram

    def pair_scorer(self) -> PairScorer:
        """Return a function of the positive weights, 0 of items that are not modelled."""
        modelled, weights = self.weights()
        row_of = np.full(self.n_items, -1)
        row_of[modelled] = np.arange(len(modelled))

        def scores(items: Ints) -> Floats:
            found = np.zeros((len(items), self.n_items))
            rows = row_of[items - N_RESERVED]
            own = np.flatnonzero(rows >= 0)
            found[np.ix_(own, modelled)] = np.maximum(weights[rows[own]], 0)
            return found

        return scores

    def method_scorer(self, candidates: Int[Tensor, " C"]) -> Scorer:
        """Return a function that scores the candidates (vocabulary indices).

        Positive scores are kept; the others are replaced by popularity, below 0.
        """
        rows = candidates.cpu().numpy() - N_RESERVED
        items, weights = self.weights()
        row_of = np.full(self.n_items, -1)
        row_of[items] = np.arange(len(items))
        is_modelled = row_of[rows] >= 0
        table = torch.from_numpy(weights[:, row_of[rows[is_modelled]]].astype(np.float32))
        columns_of = torch.from_numpy(np.flatnonzero(is_modelled))
        fallback = self.fallback(rows) - 1

        def scores(columns: Columns, n_known: Int[Tensor, " B"]) -> Float[Tensor, "B C"]:
            known, lengths = columns[ITEM_ID].cpu().numpy() - N_RESERVED, n_known.cpu().numpy()
            is_event = np.arange(known.shape[1]) < lengths[:, None]
            session, step = np.nonzero(is_event & (known >= 0) & (known < self.n_items))
            row = row_of[known[session, step]]
            decay = np.exp((step + 1 - lengths[session]) / self.config.predict_scale)
            is_input = row >= 0
            cells = (decay[is_input], (session[is_input], row[is_input]))
            inputs = csr_array(cells, shape=(len(known), len(items)))
            found = torch.from_numpy(inputs.toarray().astype(np.float32)) @ table
            scored = fallback.repeat(len(n_known), 1)
            scored[:, columns_of] = torch.where(found > 0, found, scored[:, columns_of])
            return scored

        return scores


def _aged(products: csr_array, kept: Floats) -> csr_array:
    """Multiply by the share kept, and drop values below FLOOR."""
    aged = products * kept
    aged.data[aged.data < FLOOR] = 0
    aged.eliminate_zeros()
    return aged


def _normalized(rows: csr_array) -> csr_array:
    """Scale the weights of each row so that they sum to 1."""
    return diags_array(1 / rows.sum(axis=1)) @ rows
