"""Many sessions at once: each is answered as if it were alone."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from dayahead.core.errors import DataError
from dayahead.serve.raw_sessions import RawSessions
from dayahead.serve.request import Options
from support.window_folders import markov_days, raw_events

FEATURES = ("category", "price")
NEW = 99
SESSIONS = [
    *markov_days(n_days=1, sessions_per_day=30, n_items=15, seed=3)[0],
    [NEW, 4],
    [3],
    [5, 5, 5, NEW, 5, 7, 8, 9, 1, 2],
]
MODELS = [
    ("gpt2", "clm", FEATURES),
    ("memory", "clm", ("category",)),
    ("transitions", "clm", ()),
    *(
        pytest.param(*model, marks=pytest.mark.slow)
        for model in (
            ("gpt2", "clm", ()),
            ("bert", "mlm", ()),
            ("bert", "mlm", FEATURES),
            ("xlnet", "plm", ()),
            ("memory", "clm", ()),
        )
    ),
]


def joined(sessions, number=1):
    tables = [raw_events(items, number, row) for row, items in enumerate(sessions)]
    return RawSessions.of(tables, [None] * len(tables))


def same(found, expected):
    """Whether two lists of (item, score) agree, but for the order of scores that are equal."""
    assert [score for _, score in found] == pytest.approx(
        [score for _, score in expected], rel=1e-5, abs=1e-5
    )
    assert dict(found) == pytest.approx(dict(expected), rel=1e-5, abs=1e-5)


@pytest.mark.parametrize(("architecture", "task", "features"), MODELS)
@pytest.mark.parametrize("exclude_seen", [False, True])
def test_rows_equal_single_calls(load, architecture, task, features, exclude_seen):
    model = load(architecture, task, features)
    options = Options(top_k=1000, exclude_seen=exclude_seen)
    found = model.listed(model.rank(joined(SESSIONS), [options] * len(SESSIONS)))
    for row, (items, top) in enumerate(zip(SESSIONS, found, strict=True)):
        alone = model.recommend_after(raw_events(items, 1, row), 1000, exclude_seen=exclude_seen)
        same(top, alone)


def test_rows_equal_single_calls_with_a_network_beside_memories(load):
    model = load("memory", network="gpt2")
    found = model.listed(model.rank(joined(SESSIONS), [Options(top_k=1000)] * len(SESSIONS)))
    for row, (items, top) in enumerate(zip(SESSIONS, found, strict=True)):
        same(top, model.recommend_after(raw_events(items, 1, row), 1000))


def test_each_session_has_its_own_options(load):
    model = load()
    whole = model.recommend([1, 2], 1000)
    chosen = [
        Options(top_k=2),
        Options(top_k=1000, deny=[whole[0][0], NEW]),
        Options(top_k=3, allow=[item for item, _ in whole[4:9]]),
        Options(top_k=5, allow=[whole[7][0], NEW]),
        Options(top_k=5, allow=[]),
        Options(top_k=1000, exclude_seen=True, deny=["3"]),
    ]
    found = model.listed(model.rank(joined([[1, 2]] * len(chosen)), chosen))
    same(found[0], whole[:2])
    same(found[1], whole[1:])
    same(found[2], whole[4:7])  # filters act before the top k, so k items come back
    same(found[3], whole[7:8])
    assert found[4] == []
    same(found[5], [pair for pair in whole if pair[0] not in (1, 2, 3)])


def test_sessions_of_unknown_items_and_none_are_answered_as_asked(load):
    model = load()
    sessions = joined([[NEW], [], [1]])
    popular = model.recommend([NEW], 4, cold_start="popularity")
    by_model = model.recommend([NEW], 4, cold_start="model")

    def answers(cold_start, **more):
        options = [Options(top_k=4, cold_start=cold_start, **more)] * 3
        ranked = model.rank(sessions, options)
        assert ranked.is_cold.tolist() == [True, True, False]
        return model.listed(ranked)

    known = model.recommend([1], 4)
    assert [each[:1] for each in answers("refuse")] == [[], [], known[:1]]
    assert answers("popularity")[:2] == [popular, popular]
    same(answers("model")[0], by_model)
    same(answers("model")[1], by_model)
    assert answers("popularity", deny=[popular[0][0]])[0][:3] == popular[1:]


def test_all_sessions_may_be_empty(load):
    model = load("memory")
    [top] = model.listed(model.rank(joined([[]]), [Options(cold_start="model")]))
    assert len(top) == 10


def test_an_event_without_a_time_is_refused(load):
    sessions = joined([[1, 2]])
    times = pa.nulls(2, sessions.events["event_time"].type)
    events = sessions.events.set_column(1, "event_time", times)
    with pytest.raises(DataError, match="without event_time"):
        load().rank(replace(sessions, events=events), [Options()])


def test_repeats_and_truncation_stay_within_their_session(load):
    """A null id is no repeat of another session's item."""
    model = load()
    rules = replace(model.stored.config.statistics.sessions, repeats="drop_all")
    statistics = replace(model.stored.config.statistics, sessions=rules)
    stored = replace(model.stored, config=replace(model.stored.config, statistics=statistics))
    dropping = type(model)(stored)
    sessions = [[1, 2, 1, 3], [1, 1], [4, 2, 4]]
    tables = [raw_events(items, 1, row) for row, items in enumerate(sessions)]
    nulls = pa.nulls(1, pa.int64())
    tables[1] = pa.concat_tables([tables[1].slice(0, 1), tables[1].slice(1, 1)])
    tables[1] = tables[1].set_column(0, "item_id", pa.chunked_array([nulls, pa.array([1])]))
    arrays, offsets = dropping.encoder.encode_sessions(
        pa.concat_tables(tables), np.array([0, 4, 6, 9])
    )
    index = {row["value"]: row["index"]
             for row in stored.vocabularies["item_id"].to_pylist()}  # fmt: skip
    expected = [[index[1], index[2], index[3]], [1, index[1]], [index[4], index[2]]]
    assert np.split(arrays["item_id"], offsets[1:-1])[0].tolist() == expected[0]
    assert [part.tolist() for part in np.split(arrays["item_id"], offsets[1:-1])] == expected
