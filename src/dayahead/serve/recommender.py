"""Recommendations for a live session, from a saved model."""

import reprlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from dayahead.core.columns import EVENT_TIME, ITEM_ID, N_RESERVED, UNKNOWN, VALUE
from dayahead.core.errors import ConfigError, DataError
from dayahead.core.ragged import row_of_each
from dayahead.features.arrays import ints
from dayahead.features.session_encoder import SessionEncoder
from dayahead.features.vocabulary import KnownValues
from dayahead.model.checkpoint import StoredModel, load_model
from dayahead.model.embeddings import VECTOR
from dayahead.serve.known_items import KnownItems
from dayahead.serve.ranking import Filter, Named, Ranked, RankingModel, rank_sessions
from dayahead.serve.raw_sessions import RawSessions
from dayahead.serve.raw_values import item_id, read_events_csv, typed_column
from dayahead.serve.request import ColdStart, ItemIds, Options
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
        return cls(load_model(Path(folder), to_fit=False).without_withdrawn())

    def recommend(
        self,
        items: Sequence[int | str],
        top_k: int,
        *,
        cold_start: ColdStart = "refuse",
        exclude_seen: bool = False,
        where: Mapping[str, Sequence[str]] | None = None,
    ) -> list[Recommendation]:
        """Return the `top_k` most likely next items after raw item ids, oldest first.

        Only the last ids of a long session are used. Options are those of `recommend_after`.

        Raises:
            ConfigError: the model needs side features.
            DataError: there are no ids, none is known, or one is not of the data set's type.
        """
        events = self.events_of(items)
        return self.recommend_after(
            events, top_k, cold_start=cold_start, exclude_seen=exclude_seen, where=where
        )

    def item_vectors(self) -> pa.Table:
        """Return the vectors by which the network, or that of `memory`, reads items.

        Returns:
            A row for each item that may be recommended, in the order of the catalogue: value (raw
            id) and vector (float32 list), as `model.pretrained_items` reads them.

        Raises:
            ConfigError: the model has no network.
        """
        network = self.stored.model.network
        if network is None:
            name = self.stored.config.model.architecture
            raise ConfigError(f"{name} has no item vectors; load a model with a network, as gpt2")
        candidates = self.stored.candidates
        rows = candidates[~self.is_unknown(candidates)] - N_RESERVED
        vectors = network.item_vectors[torch.from_numpy(rows).long()].detach().numpy()
        offsets = np.arange(0, vectors.size + 1, vectors.shape[1], dtype=np.int32)
        values = self.stored.vocabularies[ITEM_ID][VALUE].take(pa.array(rows))
        lists = pa.ListArray.from_arrays(offsets, vectors.ravel())
        return pa.table({VALUE: values, VECTOR: lists})

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
        return self.events_with({ITEM_ID: items})

    def events_with(self, columns: Mapping[str, Sequence[Any]]) -> pa.Table:
        """Return a session's events from the values of raw columns; one that is missing is null.

        Without event_time they happen where the last fitted window ends.

        Raises:
            DataError: a value is not of its column's type.
        """
        n_events = len(columns[ITEM_ID])
        found = {ITEM_ID: self.item_column(columns[ITEM_ID])}
        for name, type_ in self.column_types.items():
            if name == ITEM_ID:
                continue
            values = columns.get(name, [None] * n_events)
            if name == EVENT_TIME and name not in columns:
                values = [self.now] * n_events
            found[name] = typed_column(name, values, type_)
        return pa.table(found)

    def item_column(self, items: Sequence[int | str | None]) -> pa.Array:
        """Return item ids in the data set's type; nulls stay null.

        Raises:
            DataError: one is not of that type.
        """
        type_ = self.column_types[ITEM_ID]
        # The fast way, if all ids have the right type; else one by one: text may be an integer.
        with suppress(DataError):
            return typed_column(ITEM_ID, items, type_)
        is_text = self.stored.config.statistics.item_type == "string"
        typed = [None if item is None else item_id(item, is_text=is_text) for item in items]
        return pa.array(typed, type_)

    def recommend_after(
        self,
        events: pa.Table,
        top_k: int,
        past: pa.Table | None = None,
        *,
        cold_start: ColdStart = "refuse",
        exclude_seen: bool = False,
        where: Mapping[str, Sequence[str]] | None = None,
    ) -> list[Recommendation]:
        """Return the `top_k` most likely next items after a session's events (`read_events`).

        Of equal scores the item that is older in the catalogue comes first, as in
        results/predictions.

        Args:
            events: the session's; item ids that the model does not know count as unknown.
            top_k: number of items, at least 1.
            past: the user's events, after the data set's rule for repeats; only those before the
                session are used. None for an unknown user.
            cold_start: the result if the model knows no item of the session or of `past`: an
                error, the items with most events in the last fitted window, or the model's.
            exclude_seen: whether to leave out the items of the session and of `past`.
            where: values of attributes of items, as text, of which an item must have one each.

        Raises:
            DataError: there are no events, one has no time, or none of the items is known.
            ConfigError: `past` is given, but the model reads no past events.
        """
        if len(events) == 0:
            raise DataError("the session is empty; expected at least one event")
        options = Options(
            top_k=top_k, cold_start=cold_start, exclude_seen=exclude_seen, where=where or {}
        )
        found = self.rank(RawSessions.of([events], [past]), [options])
        if found.is_cold[0] and cold_start == "refuse":
            raise DataError(
                f"the model knows none of the item ids of the session: "
                f"{', '.join(map(str, self.unknown_items(events)))}; expected ids of the data set "
                f"it was fitted on. To recommend the most popular items instead, add "
                f"--cold-start popularity"
            )
        [top] = self.listed(found)
        return top

    def rank(self, sessions: RawSessions, options: Sequence[Options]) -> Ranked:
        """Rank the candidates after many sessions at once, each by its own options.

        A session without events is cold too. A cold one whose options say `refuse` has no items.

        Raises:
            ConfigError: past events are given, but the model reads none.
            DataError: an event has no time.
        """
        indices = self.encoder.item_indices(sessions.events[ITEM_ID])
        is_unknown = self.is_unknown(indices)
        rows = sessions.row_sessions
        if sessions.past is not None:
            past_items = sessions.past.events[ITEM_ID]
            indices = np.concatenate([indices, self.encoder.item_indices(past_items)])
            rows = np.concatenate([rows, sessions.past.row_sessions])
        excludes = np.array([each.exclude_seen for each in options], bool)
        columns = self._candidate_columns[indices]
        is_left_out = excludes[rows] & (columns >= 0)
        seen = rows[is_left_out], columns[is_left_out]
        others = self._others(sessions, is_unknown)
        # By id, because options hold lists or arrays, which cannot be hashed.
        named = {
            key: self.named(each, others)
            for key, each in {id(each): each for each in options}.items()
            if each.allow is not None or each.where or len(each.deny)
        }
        encoded = self._encoded(sessions.without_empty(self.now), others)
        # Only what the model reads counts: events after the session's start are no past of it.
        is_read = ~self.is_unknown(encoded.columns[ITEM_ID].numpy())
        read = np.bincount(row_of_each(encoded.lengths.numpy())[is_read], minlength=len(sessions))
        is_cold = read == 0
        available = self.known_items.available(sessions, self.now)
        allowed = Filter(options, named, seen, self._ranking.candidates, available)
        found = rank_sessions(self._ranking, encoded, is_cold, allowed)
        return Ranked(*found, is_cold, is_unknown, others)

    def listed(self, found: Ranked) -> list[list[Recommendation]]:
        """Return the raw ids and scores of each session's items."""
        items, ends = self.items_of(found).to_pylist(), np.cumsum(found.counts).tolist()
        scores = found.scores[found.is_used].tolist()
        pairs = list(zip(items, scores, strict=True))
        return [pairs[i:j] for i, j in zip([0, *ends], ends, strict=False)]

    def items_of(self, found: Ranked) -> pa.Array:
        """Return the raw ids of all sessions' items, one after another."""
        known = self.stored.vocabularies[ITEM_ID][VALUE]
        rows = found.items[found.is_used] - N_RESERVED
        if not (rows >= len(known)).any():
            return known.take(pa.array(rows)).combine_chunks()
        both = pa.chunked_array([*known.chunks, found.others.values], known.type)
        return both.take(pa.array(rows)).combine_chunks()

    def _others(self, sessions: RawSessions, is_unknown: NDArray[np.bool_]) -> KnownValues:
        """Return the raw ids of the sessions' items that the model does not know, each once."""
        type_ = self.column_types[ITEM_ID]
        items = sessions.events[ITEM_ID].filter(pa.array(is_unknown)).cast(type_)
        return KnownValues(items.unique().drop_null())

    def named(self, options: Options, others: KnownValues | None = None) -> Named:
        """Return the items that options name; those of `others` are numbered, too.

        Raises:
            ConfigError: the model does not know an attribute in `where`.
            DataError: an id is not of the data set's type.
        """

        def numbers(items: ItemIds | pa.Array) -> NDArray[np.int32]:
            typed = items if isinstance(items, pa.Array) else self.item_column(items)
            ids = pa.chunked_array([typed])
            encoder = self.encoder
            found = encoder.item_numbers(ids, others) if others else encoder.item_indices(ids)
            return np.asarray(found[found != UNKNOWN])

        deny = numbers(options.deny)
        allow = None if options.allow is None else numbers(options.allow)
        if options.where:
            found = self.known_items.matching(options.where)
            allow = found if allow is None else found[np.isin(found, allow)]
        return Named(allow, deny)

    def explain(
        self, events: pa.Table, items: Sequence[int | str], past: pa.Table | None = None
    ) -> list[dict[str, float]]:
        """Explain the scores of items after a session's events, for the architecture memory.

        Events and past are those of `recommend_after`.

        Returns:
            For each item its score relative to the mean candidate, by feature, the strongest first.
            Empty if its score is by popularity alone, as after a session of unknown items.

        Raises:
            ConfigError: the model has no memories.
        """
        self.check_explains()
        columns, n_known = self._batch(events, past)
        if self.is_unknown(columns[ITEM_ID].numpy()).all():
            return [{} for _ in items]
        indices = self.encoder.item_indices(pa.chunked_array([self.item_column(items)]))
        asked = columns, n_known, indices.astype(np.int64)
        found = self.stored.model.explain(*asked, self.stored.candidates.astype(np.int64))
        return [dict(sorted(each.items(), key=lambda part: -abs(part[1]))) for each in found]

    def check_explains(self) -> None:
        """Raise ConfigError if the model has no memories."""
        if not self.stored.model.has_named_features:
            raise ConfigError(
                f"explain: {self.stored.config.model.architecture} has no named features; leave "
                f"it out, or set model.architecture to memory"
            )

    def unknown_items(self, events: pa.Table) -> list[int | str]:
        """Return the item ids of a session that the model does not know, each once, in order."""
        is_unknown = self.is_unknown(self.encoder.item_indices(events[ITEM_ID]))
        return [*events[ITEM_ID].filter(pa.array(is_unknown)).unique().to_pylist()]

    def is_unknown(self, items: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Say which vocabulary indices the model does not know, as files of the next window."""
        config = self.stored.config
        # Where the vocabulary is shorter, numbers of other items follow it.
        end = N_RESERVED + min(config.known[ITEM_ID], config.sizes[ITEM_ID])
        return np.asarray((items < N_RESERVED) | (items >= end))

    def _batch(self, events: pa.Table, past: pa.Table | None) -> tuple[dict[str, Tensor], Tensor]:
        """Return a scorer's input for one session: columns [1, L], and the number of events."""
        sessions = self._encoded(RawSessions.of([events], [past]).without_empty(self.now))
        columns = {name: pad(values, (0, 1))[None] for name, values in sessions.columns.items()}
        return columns, sessions.lengths

    def read_events(self, path: Path) -> pa.Table:
        """Read a session's events from a CSV: item_id, event_time and the model's raw features.

        Raises:
            DataError: the file is missing, lacks a column or holds a value of another type.
        """
        return read_events_csv(path, self.column_types)

    def _encoded(self, sessions: RawSessions, others: KnownValues | None = None) -> Sessions:
        return self._with_past(sessions, others).without_later(self.stored.config.known)

    def _with_past(self, sessions: RawSessions, others: KnownValues | None) -> Sessions:
        sessions.check_times()
        own = self.known_items.encode_sessions(sessions.events, sessions.offsets, others)
        if sessions.past is None:
            return own
        self.check_reads_past()
        # Only events before the session count as its past, the oldest first.
        times = ints(sessions.events[EVENT_TIME])
        starts = np.minimum.reduceat(times, sessions.offsets[:-1])
        rows, past = sessions.past.row_sessions, sessions.past.events
        past_times = ints(past[EVENT_TIME])
        order = np.lexsort((past_times, rows))
        order = order[past_times[order] < starts[rows[order]]]
        if not len(order):
            return own
        lengths = np.bincount(rows[order], minlength=len(sessions))
        before = self.known_items.encode(past.take(pa.array(order)), lengths)
        return own.after(before, self.stored.config.model.n_past_read)

    def check_reads_past(self) -> None:
        """Raise ConfigError if the model reads no past events."""
        if self.stored.config.model.n_past_read == 0:
            raise ConfigError(
                "this model reads no past events (model.past_length is 0, or it is a baseline); "
                "omit --past"
            )

    @property
    def now(self) -> int:
        """When events without a time happen, microseconds since 1970: the last window's end."""
        return self.stored.config.end

    def events_of_session(self, session: str) -> pa.Table:
        """Raise ConfigError: of no session events are seen."""
        raise ConfigError(
            f"session_id {reprlib.repr(session)}: this service takes no events; send session or "
            f"events instead, or start it with --live"
        )

    @property
    def features(self) -> tuple[str, ...]:
        """Side features that the model reads, except those that it knows of each item."""
        known = self.known_items.features
        return tuple(name for name in self.stored.config.model.features if name not in known)

    @cached_property
    def _candidate_columns(self) -> NDArray[np.int64]:
        """The column of each vocabulary index among the candidates, -1 where it is none."""
        columns = np.full(N_RESERVED + len(self.stored.vocabularies[ITEM_ID]), -1)
        columns[self.stored.candidates] = np.arange(len(self.stored.candidates))
        return columns

    @cached_property
    def encoder(self) -> SessionEncoder:
        """Turns raw values into the model's input."""
        return SessionEncoder(self.stored.config.statistics, self.stored.vocabularies)

    @cached_property
    def _ranking(self) -> RankingModel:
        candidates = torch.from_numpy(self.stored.candidates).long()
        scorer = self.stored.model.session_scorer(candidates)
        return RankingModel(scorer, candidates, torch.from_numpy(self.popularity))

    @property
    def popularity(self) -> NDArray[np.float32]:
        """By which the candidates are ranked after cold sessions."""
        return self.stored.popularity.astype(np.float32)

    @property
    def column_types(self) -> dict[str, Any]:
        """Types of the raw columns of events: `known_items.column_types`."""
        return self.known_items.column_types

    @cached_property
    def known_items(self) -> KnownItems:
        """What the model knows of items besides their clicks."""
        return KnownItems(self.stored.config.statistics, self.stored.items, self.encoder)
