"""Recommendations for a live session, from a saved model."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from dayahead.core.columns import EVENT_TIME, ITEM_ID, N_RESERVED, TIMESTAMP, UNKNOWN, VALUE
from dayahead.core.errors import ConfigError, DataError
from dayahead.features.session_encoder import Arrays, SessionEncoder
from dayahead.features.workflow import input_types
from dayahead.metrics.ranking import top_columns
from dayahead.model.checkpoint import StoredModel, load_model
from dayahead.model.memories import MemoryRecommender
from dayahead.model.output_layer import Scorer
from dayahead.serve.request import ColdStart
from dayahead.train.batches import Sessions

Recommendation = tuple[int | str, float]
"""A raw item id and its score."""


@dataclass(frozen=True)
class Recommender:
    """A saved model that recommends the next items of a session."""

    stored: StoredModel

    @classmethod
    def load(cls, folder: str | Path) -> "Recommender":
        """Load the folder that `dvc repro` writes, models/.

        Raises:
            ModelFileError: a part of the folder is missing or damaged.
        """
        return cls(load_model(Path(folder)))

    def recommend(
        self,
        items: Sequence[int | str],
        top_k: int,
        *,
        cold_start: ColdStart = "refuse",
        exclude_seen: bool = False,
    ) -> list[Recommendation]:
        """Return the `top_k` most likely next items after raw item ids, oldest first.

        Only the last ids of a long session are used. Options are those of `recommend_after`.

        Raises:
            ConfigError: the model needs side features.
            DataError: there are no ids, none is known, or one is not of the data set's type.
        """
        events = self.events_of(items)
        return self.recommend_after(events, top_k, cold_start=cold_start, exclude_seen=exclude_seen)

    def events_of(self, items: Sequence[int | str]) -> pa.Table:
        """Return the events of a session of raw item ids alone, oldest first.

        They happen where the last fitted window ends.

        Raises:
            ConfigError: the model needs side features.
            DataError: an id is not of the data set's type.
        """
        if self.features:
            raise ConfigError(
                f"this model reads {', '.join(self.features)} besides the item id; pass the "
                f"session's events as a file with --events"
            )
        times = pa.array([self.stored.config.end] * len(items), TIMESTAMP)
        return pa.table({ITEM_ID: self._item_column(items), EVENT_TIME: times})

    def _item_column(self, items: Sequence[int | str]) -> pa.Array:
        raw = [self._typed(item) for item in items]
        return pa.array(raw, self._column_types[ITEM_ID])

    def recommend_after(
        self,
        events: pa.Table,
        top_k: int,
        past: pa.Table | None = None,
        *,
        cold_start: ColdStart = "refuse",
        exclude_seen: bool = False,
    ) -> list[Recommendation]:
        """Return the `top_k` most likely next items after a session's events (`read_events`).

        Of equal scores the item that is older in the catalogue comes first, as in
        results/predictions.

        Args:
            events: the session's; item ids that the model does not know count as unknown.
            top_k: number of items, at least 1.
            past: the user's events, after the data set's rule for repeats; only those before the
                session are used. None for an unknown user.
            cold_start: what answers if the model knows no item of the session and of `past`: an
                error, the items with most events in the last fitted window, or the model.
            exclude_seen: whether to leave out the items of the session and of `past`.

        Raises:
            DataError: there are no events, one has no time, or none of the items is known.
            ConfigError: `past` is given, but the model reads no past events.
        """
        _check_events(events)
        seen = self._seen(events, past)
        is_cold = (seen == UNKNOWN).all()
        if is_cold and cold_start == "refuse":
            raise DataError(
                f"the model knows none of the item ids of the session: "
                f"{', '.join(map(str, self.unknown_items(events)))}; expected ids of the data set "
                f"it was fitted on. To recommend the most popular items instead, add "
                f"--cold-start popularity"
            )
        popular = is_cold and cold_start == "popularity"
        scores = self._popularity if popular else self._scores(events, past)
        rows = self.stored.candidates - N_RESERVED
        if exclude_seen:
            is_new = ~np.isin(self.stored.candidates, seen)
            scores, rows = scores[torch.from_numpy(is_new)], rows[is_new]
        columns, highest = top_columns(scores[None], top_k)
        items = self.stored.vocabularies[ITEM_ID][VALUE].take(pa.array(rows[columns[0].numpy()]))
        return list(zip(items.to_pylist(), highest[0].tolist(), strict=True))

    def _seen(self, events: pa.Table, past: pa.Table | None) -> NDArray[np.int32]:
        """Return the indices of the items of a session and of the past."""
        both = [events[ITEM_ID], *([] if past is None else [past[ITEM_ID]])]
        chunks = [chunk for each in both for chunk in each.chunks]
        return self._encoder.item_indices(pa.chunked_array(chunks))

    def explain(
        self, events: pa.Table, items: Sequence[int | str], past: pa.Table | None = None
    ) -> list[dict[str, float]]:
        """Say what speaks for items after a session's events, for a model of memories.

        Events and past are those of `recommend_after`.

        Returns:
            For each item its lead over the mean candidate by feature, the strongest first. Empty
            where popularity alone speaks for it, as after a session of unknown items.

        Raises:
            ConfigError: the model has no memories.
        """
        model = self.stored.model
        if not isinstance(model, MemoryRecommender):
            raise ConfigError(
                f"--explain: {self.stored.config.model.architecture} has no named features to "
                f"explain a score with; leave it out, or set model.architecture to memory"
            )
        if (self._seen(events, past) == UNKNOWN).all():
            return [{} for _ in items]
        columns, n_known = self._batch(events, past)
        indices = self._encoder.item_indices(pa.chunked_array([self._item_column(items)]))
        found = model.explain(columns, n_known, indices.astype(np.int64))
        return [dict(sorted(each.items(), key=lambda part: -abs(part[1]))) for each in found]

    def unknown_items(self, events: pa.Table) -> list[int | str]:
        """Return the item ids of a session that the model does not know, each once, in order."""
        is_unknown = self._encoder.item_indices(events[ITEM_ID]) == UNKNOWN
        unknown: list[int | str] = events[ITEM_ID].filter(pa.array(is_unknown)).unique().to_pylist()
        return unknown

    def _scores(self, events: pa.Table, past: pa.Table | None) -> Float[Tensor, " C"]:
        return self._scorer(*self._batch(events, past))[0]

    def _batch(
        self, events: pa.Table, past: pa.Table | None
    ) -> tuple[dict[str, Tensor], Int[Tensor, " 1"]]:
        """Return a scorer's input: columns [1, L], and the number of known events."""
        sessions = self._encoded(events, past)
        n_known = len(sessions.columns[ITEM_ID])
        columns = {
            # One more column: some tasks predict at the position of the next event.
            name: torch.nn.functional.pad(values, (0, 1))[None]
            for name, values in sessions.columns.items()
        }
        return columns, torch.tensor([n_known])

    def read_events(self, path: Path) -> pa.Table:
        """Read a session's events from a CSV: item_id, event_time and the model's raw features.

        Raises:
            DataError: the file is missing, lacks a column or holds a value of another type.
        """
        types = self._column_types
        options = pa.csv.ConvertOptions(column_types=types, include_columns=list(types))
        try:
            return pa.csv.read_csv(path, convert_options=options)
        except (OSError, pa.ArrowException, KeyError) as error:
            raise DataError(
                f"{path}: expected a CSV with the columns {', '.join(types)}: {error}"
            ) from None

    def _encoded(self, events: pa.Table, past: pa.Table | None) -> Sessions:
        length = self.stored.config.model.n_past_read
        session = _one_session(self._encoder.encode_session(events))
        if past is None:
            return session
        if length == 0:
            raise ConfigError(
                "this model reads no past events (model.past_length is 0, or it is a baseline); "
                "omit --past"
            )
        is_before = pc.less(past[EVENT_TIME], pc.min(events[EVENT_TIME]))
        past = past.filter(is_before).sort_by(EVENT_TIME)
        if len(past) == 0:
            return session
        return session.after(_one_session(self._encoder.encode(past)), length)

    @property
    def features(self) -> tuple[str, ...]:
        """Side features that the model reads."""
        return self.stored.config.model.features

    @cached_property
    def _popularity(self) -> Float[Tensor, " C"]:
        return torch.from_numpy(self.stored.popularity.astype(np.float32))

    @cached_property
    def _encoder(self) -> SessionEncoder:
        return SessionEncoder(self.stored.config.statistics, self.stored.vocabularies)

    @cached_property
    def _scorer(self) -> Scorer:
        return self.stored.model.scorer(torch.from_numpy(self.stored.candidates).long())

    @cached_property
    def _column_types(self) -> dict[str, Any]:
        return input_types(self.stored.config.statistics) | {EVENT_TIME: TIMESTAMP}

    def _typed(self, item: int | str) -> int | str:
        if self.stored.config.statistics.item_type == "string":
            return str(item)
        try:
            return int(pa.scalar(int(item), pa.int64()).as_py())
        except (ValueError, OverflowError):
            raise DataError(
                f"item id {item!r}: expected a 64-bit integer, as in the data set; for example "
                f"--session 12,7"
            ) from None


def _check_events(events: pa.Table) -> None:
    if len(events) == 0:
        raise DataError("the session is empty; expected at least one event")
    if events[EVENT_TIME].null_count:
        raise DataError("the session has an event without a time; expected event_time in each row")


def _one_session(arrays: Arrays) -> Sessions:
    columns = {name: torch.from_numpy(values) for name, values in arrays.items()}
    columns |= {name: each.long() for name, each in columns.items() if each.dtype == torch.int32}
    return Sessions(columns, torch.tensor([0, len(columns[ITEM_ID])]))
