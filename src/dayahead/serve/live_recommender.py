"""Recommendations of a model that counts clicks as they come, as of one tick."""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dayahead.core.columns import EVENT_TIME, N_RESERVED
from dayahead.features.session_encoder import SessionEncoder
from dayahead.features.vocabulary import KnownValues
from dayahead.live.live_model import LiveModel
from dayahead.memory.clicks import among
from dayahead.serve.raw_sessions import RawSessions
from dayahead.serve.recommender import Recommender
from dayahead.train.batches import Sessions


@dataclass(frozen=True)
class LiveRecommender(Recommender):
    """Recommends as of the last tick that `live` has counted, until it counts the next one.

    `stored` is its state of that tick; the recommendations are those of evaluation there.
    """

    live: LiveModel = field(kw_only=True)

    @cached_property
    def now(self) -> int:  # type: ignore[override]
        """When events without a time happen, microseconds since 1970: at the tick."""
        return self.live.now

    def events_of_session(self, session: str) -> pa.Table:
        """Return the latest events of a session; none where it is unknown."""
        events = self.live.sessions.events_of(session)
        names = self.column_types.keys() - {EVENT_TIME}
        columns = {name: [each.fields.get(name) for each in events] for name in names}
        return self.events_with(columns | {EVENT_TIME: [each.time for each in events]})

    @property
    def encoder(self) -> SessionEncoder:  # type: ignore[override]
        """Encodes what is new since the fit, too."""
        return self.live.encoder

    def is_unknown(self, items: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Say which vocabulary indices have not been counted."""
        return np.asarray(~among(items, self.live.is_known) | (items < N_RESERVED))

    @property
    def popularity(self) -> NDArray[np.float32]:
        """By which the candidates are ranked after cold sessions, as of the tick."""
        return self.live.popularity_of(self.stored.candidates)

    def _encoded(self, sessions: RawSessions, others: KnownValues | None = None) -> Sessions:
        # What is new since the fit is not hidden: memories know it once it is counted.
        return self._with_past(sessions, others)
