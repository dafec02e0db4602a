"""Requests of the HTTP service, answered many at once."""

from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dayahead.core.columns import EVENT_TIME, ITEM_ID
from dayahead.core.errors import ConfigError, DataError, DayaheadError
from dayahead.serve.messages import (
    Answer,
    Event,
    Model,
    Scored,
    SessionRequest,
    SimilarAnswer,
    SimilarRequest,
    columns_of,
)
from dayahead.serve.model_source import LoadedModel
from dayahead.serve.raw_sessions import RawSessions
from dayahead.serve.recommender import Recommender
from dayahead.serve.request import N_REASONS, ColdStart, Options

Request = SessionRequest | SimilarRequest
Result = Answer | DayaheadError
AnyResult = Result | SimilarAnswer


def answer_requests(
    model: LoadedModel, requests: Sequence[Request], cold_start: ColdStart
) -> list[AnyResult]:
    """Answer all requests, those with sessions with one pass of the model.

    A request that cannot be answered gets its error, and does not affect the others.
    """
    sessions = [each for each in requests if isinstance(each, SessionRequest)]
    answers = iter(_answer_sessions(model, sessions, cold_start) if sessions else ())
    return [
        _answer_similar(model, each) if isinstance(each, SimilarRequest) else next(answers)
        for each in requests
    ]


def _answer_similar(model: LoadedModel, request: SimilarRequest) -> SimilarAnswer | DayaheadError:
    try:
        options = Options(
            top_k=request.top_k, allow=request.allow, deny=request.deny, where=request.where
        )
        [top] = model.similar.find([request.item], options, request.by)
        items = [Scored(item, score) for item, score in top]
        about = Model(model.version, model.window)
        return SimilarAnswer(items, model.similar.description(request.by), about)
    except DayaheadError as error:
        return error


def _answer_sessions(
    model: LoadedModel, requests: Sequence[SessionRequest], cold_start: ColdStart
) -> list[Result]:
    prepared = [_prepared(model.recommender, request, cold_start) for request in requests]
    good = [each for each in prepared if not isinstance(each, DayaheadError)]
    answers = iter(_answered(model, good) if good else ())
    return [each if isinstance(each, DayaheadError) else next(answers) for each in prepared]


class Prepared(NamedTuple):
    """A session in the types of the model."""

    events: pa.Table
    past: pa.Table | None
    options: Options
    explains: bool


def _prepared(
    recommender: Recommender, request: SessionRequest, cold_start: ColdStart
) -> Prepared | DayaheadError:
    try:
        options = Options(
            top_k=request.top_k,
            cold_start=request.cold_start or cold_start,
            exclude_seen=request.exclude_seen,
            allow=None if request.allow is None else recommender.item_column(request.allow),
            deny=recommender.item_column(request.deny),
            where=request.where,
        )
        recommender.known_items.matching(request.where)  # so that its errors are of this request
        past = None
        if request.past is not None:
            recommender.check_reads_past()
            past = table_of(recommender, request.past)
        if request.explain:
            recommender.check_explains()
        return Prepared(_events_of(recommender, request), past, options, request.explain)
    except DayaheadError as error:
        return error


def _events_of(recommender: Recommender, request: SessionRequest) -> pa.Table:
    if request.events is not None:
        return table_of(recommender, request.events)
    if request.session is None:
        assert request.session_id is not None
        return recommender.events_of_session(request.session_id)
    if recommender.features:
        raise ConfigError(
            f"this model reads {', '.join(recommender.features)} besides the item id; send "
            f"events instead of session: objects with item_id, event_time and these"
        )
    return recommender.events_with({ITEM_ID: request.session})


def table_of(recommender: Recommender, events: Sequence[Event]) -> pa.Table:
    """Return events as the model reads them.

    Raises:
        DataError: a value is not of its type, or all lack a field that the model reads.
    """
    raw = recommender.column_types.keys() - {ITEM_ID, EVENT_TIME}
    columns = columns_of(events, raw)
    if events and (missing := sorted(raw - columns.keys())):
        raise DataError(f"events: {', '.join(missing)} is missing; this model reads it")
    table = recommender.events_with(columns)
    RawSessions(table, np.array([0, len(table)])).check_times()
    return table


def _answered(model: LoadedModel, prepared: Sequence[Prepared]) -> list[Result]:
    recommender = model.recommender
    sessions = RawSessions.of([each.events for each in prepared], [each.past for each in prepared])
    found = recommender.rank(sessions, [each.options for each in prepared])
    about = Model(model.version, model.window)
    unknown = _unknown(sessions, found.is_unknown)
    results: list[Result] = []
    for row, (asked, top) in enumerate(zip(prepared, recommender.listed(found), strict=True)):
        is_cold = bool(found.is_cold[row])
        if is_cold and asked.options.cold_start == "refuse":
            results.append(
                DataError(
                    "the model knows no item of the session; expected ids of the data set it was "
                    'fitted on. To get the most popular items instead, send "cold_start": '
                    '"popularity"'
                )
            )
            continue
        items = [Scored(item, score) for item, score in top]
        if asked.explains:
            _add_evidence(recommender, asked, items)
        results.append(Answer(items, unknown[row], is_cold, about))
    return results


def _add_evidence(recommender: Recommender, asked: Prepared, items: Sequence[Scored]) -> None:
    parts = recommender.explain(asked.events, [each.item for each in items], asked.past)
    for item, named in zip(items, parts, strict=True):
        item.evidence = dict(islice(named.items(), N_REASONS))


def _unknown(sessions: RawSessions, is_unknown: NDArray[np.bool_]) -> list[list[int | str | None]]:
    """Return the items of each session that the model does not know, each once."""
    unknown: list[dict[int | str | None, None]] = [{} for _ in range(len(sessions))]
    rows = sessions.row_sessions[is_unknown].tolist()
    items = sessions.events[ITEM_ID].take(pa.array(np.flatnonzero(is_unknown))).to_pylist()
    for row, item in zip(rows, items, strict=True):
        unknown[row][item] = None
    return [list(each) for each in unknown]
