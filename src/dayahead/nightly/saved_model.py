"""A saved model, tested on a window: its answers to some sessions, and the items it knows."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pyarrow as pa

from dayahead.config.params import Params
from dayahead.core.columns import ITEM_ID, N_RESERVED, SESSION_ID, VALUE
from dayahead.core.errors import DayaheadError
from dayahead.model.checkpoint import StoredModel, load_model
from dayahead.nightly.guards import Check, not_checked
from dayahead.serve.recommender import Recommender
from dayahead.windows.folder import Window, WindowFolder

TOP_K = 10


@dataclass(frozen=True)
class SavedModel:
    """A folder such as models/, with the windows of the study."""

    folder: Path
    windows: WindowFolder
    params: Params

    @cached_property
    def stored(self) -> StoredModel:
        """The loaded folder.

        Raises:
            ModelFileError: it is damaged.
        """
        return load_model(self.folder, to_fit=False)

    def smoke_check(self, window: Window, n_sessions: int) -> Check:
        """Check that the model answers sessions of a window given as raw ids."""
        guard = "smoke_sessions"
        advice = "run `dvc repro -f train`; if it stays, the saved model cannot be served"
        try:
            recommender = Recommender(self.stored)
            if recommender.features:
                why = "the model reads features, which raw ids do not have"
                return not_checked(guard, why)
            sessions = self._raw_sessions(window, n_sessions)
            faults = [fault for ids in sessions if (fault := _fault(recommender, ids))]
        except DayaheadError as error:
            return Check(guard, False, f"the saved model does not answer: {error}", advice)
        if faults:
            why = f"{len(faults)} of {len(sessions)} sessions: {faults[0]}"
            return Check(guard, False, why, advice, len(faults), 0)
        return Check(guard, True, f"{len(sessions)} sessions answered", value=0, limit=0)

    def coverage(self, window: Window) -> float:
        """Return the share of a window's events on items that the model knows."""
        counts = self.windows.item_counts(window, "train")
        n_known = self.stored.config.sizes[ITEM_ID]
        return float(counts[N_RESERVED : N_RESERVED + n_known].sum() / counts.sum())

    def _raw_sessions(self, window: Window, n_sessions: int) -> list[list[int | str]]:
        """Return the raw ids of a window's first sessions, without their last item."""
        split = self.params.evaluation.split
        items = self.windows.read(window, split, [SESSION_ID, ITEM_ID])[ITEM_ID].slice(
            0, n_sessions
        )
        values = self.windows.vocabulary(ITEM_ID)[VALUE]
        rows = [[index - N_RESERVED for index in row[:-1]] for row in items.to_pylist()]
        return [values.take(pa.array(row)).to_pylist() for row in rows]


def _fault(recommender: Recommender, ids: Sequence[int | str]) -> str:
    """Return what is wrong with the answer to a session; empty if nothing is."""
    top = recommender.recommend(ids, TOP_K, cold_start="popularity")
    expected = min(TOP_K, len(recommender.stored.candidates))
    if len({item for item, _ in top}) != expected:
        return f"expected {expected} different items, got {len(top)}"
    if not all(math.isfinite(score) for _, score in top):
        return "a score is not finite"
    return ""
