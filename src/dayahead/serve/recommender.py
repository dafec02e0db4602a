"""Recommendations for a live session, from a saved model."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import torch

from dayahead.core.columns import EVENT_TIME, ITEM_ID, N_RESERVED, TIMESTAMP, VALUE
from dayahead.core.errors import ConfigError, DataError
from dayahead.features.workflow import encode_lists, encode_session, input_types
from dayahead.model.checkpoint import StoredModel, load_model
from dayahead.model.output_layer import Scorer
from dayahead.train.batches import Sessions

Recommendation = tuple[int | str, float]
"""A raw item id and its score."""


@dataclass(frozen=True)
class Recommender:
    """A saved model that recommends the next items of a session."""

    stored: StoredModel

    @classmethod
    def load(cls, folder: Path) -> "Recommender":
        """Load the folder that `dvc repro` writes, models/.

        Raises:
            ModelFileError: a part of the folder is missing or damaged.
        """
        return cls(load_model(folder))

    def recommend(self, items: Sequence[int | str], top_k: int) -> list[Recommendation]:
        """Return the `top_k` most likely next items after raw item ids, oldest first.

        Ids that the model does not know count as unknown; only the last ids of a long session
        are used.

        Raises:
            ConfigError: the model needs side features.
            DataError: there are no ids, or one is not of the data set's type.
        """
        if self.features:
            raise ConfigError(
                f"this model reads {', '.join(self.features)} besides the item id; pass the "
                f"session's events as a file with --events"
            )
        raw = [self._typed(item) for item in items]
        columns = {
            ITEM_ID: pa.array(raw, self._column_types[ITEM_ID]),
            EVENT_TIME: pa.array(range(len(raw)), pa.timestamp("s", "UTC")).cast(TIMESTAMP),
        }
        return self.recommend_after(pa.table(columns), top_k)

    def recommend_after(
        self, events: pa.Table, top_k: int, past: pa.Table | None = None
    ) -> list[Recommendation]:
        """Return the `top_k` most likely next items after a session's events (`read_events`).

        `past` has the user's events, after the data set's rule for repeats; only those before the
        session are used. None for an unknown user.

        Raises:
            DataError: there are no events.
            ConfigError: `past` is given, but the model reads no past events.
        """
        if len(events) == 0:
            raise DataError("the session is empty; expected at least one event")
        sessions = self._encoded(events, past)
        n_known = len(sessions.columns[ITEM_ID])
        columns = {
            # One more column: some tasks predict at the position of the next event.
            name: torch.nn.functional.pad(values, (0, 1))[None]
            for name, values in sessions.columns.items()
        }
        scores = self._scorer(columns, torch.tensor([n_known]))[0]
        top = scores.topk(min(top_k, len(scores)))
        rows = self.stored.candidates[top.indices.numpy()] - N_RESERVED
        items = self.stored.vocabularies[ITEM_ID][VALUE].take(pa.array(rows)).to_pylist()
        return list(zip(items, top.values.tolist(), strict=True))

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
        statistics, vocabularies = self.stored.config.statistics, self.stored.vocabularies
        length = self.stored.config.model.past_length
        row = encode_session(events, statistics, vocabularies)
        session = Sessions.from_table(row.drop_columns([EVENT_TIME]))
        if past is None:
            return session
        if length == 0:
            raise ConfigError("this model reads no past events (model.past_length: 0); omit --past")
        is_before = pc.less(past[EVENT_TIME], pc.min(events[EVENT_TIME]))
        past = past.filter(is_before).sort_by(EVENT_TIME)
        if len(past) == 0:
            return session
        before = encode_lists(past, [0], statistics, vocabularies)
        return session.after(Sessions.from_table(before.drop_columns([EVENT_TIME])), length)

    @property
    def features(self) -> tuple[str, ...]:
        """Side features that the model reads."""
        return self.stored.config.model.features

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
