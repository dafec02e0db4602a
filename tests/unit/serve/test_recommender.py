"""`recommend` returns the scores that evaluation computes, and rejects invalid sessions."""

from collections import Counter
from dataclasses import replace
from functools import cache

import numpy as np
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import torch

from dayahead.config.baselines import BASELINES, MEMORY
from dayahead.core.errors import ConfigError, DataError, ModelFileError
from dayahead.distributed.process import Rank
from dayahead.serve.raw_sessions import RawSessions
from dayahead.serve.recommender import Recommender
from dayahead.serve.request import Options
from dayahead.train.batches import Sessions
from dayahead.windows.folder import WindowFolder
from support.tiny_settings import BACKBONES, FAST_BACKBONES, ranks_of, train_study
from support.window_folders import day, markov_days, raw_events, write_window_folder

MAX_LENGTH = 6
DAYS = markov_days(n_days=2, sessions_per_day=20, n_items=15)
"""Sessions of up to nine events; windows hold the first six of each."""
NEW = 99
KNOWN = DAYS[0][0][0]
EVALUATED = [
    *DAYS[1][:8],
    *([3, NEW, 4, 5], [NEW, 7], [1, 2, NEW], [4] * 6),
    *([NEW, 4, NEW], [NEW, 98, 4, NEW], [NEW, 98, NEW, 98], [98, 98]),
]
WINDOWS = [[session[:MAX_LENGTH] for session in sessions] for sessions in (DAYS[0], EVALUATED)]
OF_BASELINES = [(name, "clm") for name in BASELINES]
EVERY_MODEL = [*BACKBONES, *OF_BASELINES]
FAST_MODELS = [
    *FAST_BACKBONES,
    *((name, "clm") for name in ("own", "transitions", "vstan", "slist")),
]
FAST_WITHOUT_FEATURES = [("gpt2", "clm"), ("xlnet", "plm"), ("transitions", "clm")]
FEATURES = ("category", "price")


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """Fit day 0, evaluate day 1; return the folder and the evaluated model, each fitted once."""

    @cache
    def fit(architecture, task, features, **model):
        folder = tmp_path_factory.mktemp(architecture)
        windows = write_window_folder(
            folder / "windows", WINDOWS, max_length=MAX_LENGTH, features=bool(features)
        )
        sections = {
            "model": {"architecture": architecture, "features": features, **model},
            "task": {"name": task},
            "training": {"fit_last": False},
            "evaluation": {"predictions": 5},
        }
        train_study(windows, folder, sections)
        return folder, Recommender.load(folder / "models")

    return fit


def read_predictions(folder, window):
    path = folder / "results" / "predictions" / f"{window}.parquet"
    return pq.read_table(path, partitioning=None).to_pylist()


def evaluated_scores(recommender, folder, features):
    """Scores of day 1's sessions from its window file, all in one padded batch."""
    store = WindowFolder(folder)
    table = store.read(store.windows[1], "train", ["item_id", "event_time", *features])
    sessions = Sessions.from_table(table)
    batch = sessions.gather(torch.arange(len(sessions)), rank=Rank(0, 1))
    stored = recommender.stored
    scorer = stored.model.scorer(torch.from_numpy(stored.candidates).long())
    return scorer(batch.columns, batch.lengths - 1)


@pytest.mark.parametrize(
    ("architecture", "rule"),
    [
        *(("transitions", rule) for rule in ("none", "score", "boost", "first")),
        *(("stan", "boost"), ("slist", "first")),
    ],
)
def test_reminders_are_the_same_in_evaluation_and_service(fitted, architecture, rule):
    """Items that no session had before have no raw id there, and no index here."""
    folder, recommender = fitted(architecture, "clm", (), remind=rule, remind_weight=5.0)
    ranks = ranks_of(folder, day(1))
    top = read_predictions(folder, day(1))
    for row, session in enumerate(WINDOWS[1]):
        events = raw_events(session[:-1], 1, row)
        found = recommender.recommend_after(events, top_k=5, cold_start="model")
        assert [item for item, _ in found] == top[row]["items"][:5]
        assert [score for _, score in found] == pytest.approx(top[row]["scores"][:5], rel=1e-5)
        if ranks[row] in range(1, 6):
            assert session[-1] in top[row]["items"][: ranks[row]]
        is_new = session[-1] in {NEW, 98} & {*session[:-1]}
        if is_new and rule in {"boost", "first"}:
            assert ranks[row] in {1, 2, 3}


def test_own_items_that_may_not_be_recommended_are_left_out(fitted):
    _, recommender = fitted("transitions", "clm", (), remind="first")
    events = raw_events([NEW, KNOWN, 98])

    def top(**options):
        found = recommender.rank(RawSessions.of([events], [None]), [Options(**options)])
        return [item for item, _ in recommender.listed(found)[0]]

    assert top(top_k=3) == [98, KNOWN, NEW]
    assert top(top_k=2, deny=[98]) == [KNOWN, NEW]
    assert top(top_k=9, allow=[NEW, 97]) == [NEW]
    assert not {NEW, KNOWN, 98} & {*top(top_k=1000, exclude_seen=True)}
    assert len(top(top_k=1000)) == len(recommender.stored.candidates) + 2


def mark_slow(models, fast, *more):
    """Parameters of models, all but the fast ones marked as slow."""
    return [
        pytest.param(*model, *more, marks=() if model in fast else pytest.mark.slow)
        for model in models
    ]


@pytest.mark.parametrize(
    ("architecture", "task", "features"),
    [
        *mark_slow([*EVERY_MODEL, ("gru", "clm")], FAST_MODELS, FEATURES),
        *mark_slow(EVERY_MODEL, FAST_WITHOUT_FEATURES, ()),
        ("gru4rec", "clm", ()),
        (MEMORY, "clm", ()),
        (MEMORY, "clm", ("category",)),
    ],
)
def test_evaluate_and_recommend_give_the_same_scores_and_ranks(
    fitted, architecture, task, features
):
    folder, recommender = fitted(architecture, task, features)
    scores = evaluated_scores(recommender, folder / "windows", features)
    candidates = recommender.stored.vocabularies["item_id"]["value"].to_pylist()
    candidates = [candidates[index - 2] for index in recommender.stored.candidates]
    ranks = ranks_of(folder, day(1))
    for row, session in enumerate(WINDOWS[1]):
        events = raw_events(session[:-1], 1, row)
        found = dict(recommender.recommend_after(events, top_k=1000, cold_start="model"))
        live = np.array([found[item] for item in candidates])
        wanted = scores[row].numpy()
        np.testing.assert_allclose(live, wanted, rtol=1e-5, atol=1e-5 * np.abs(wanted).max())
        target, own = session[-1], {*session[:-1]}
        rank = 0
        if target in found:
            rank = sum(score >= found[target] for score in found.values())
        elif target in own:  # below all, for a model that has no score for it
            rank = len({*candidates} | own)
        assert rank == ranks[row]


@pytest.mark.parametrize(("architecture", "task"), mark_slow(BACKBONES, FAST_WITHOUT_FEATURES))
def test_only_the_last_events_of_a_long_session_are_used(fitted, architecture, task):
    _, recommender = fitted(architecture, task, ())
    session = DAYS[0][0] + DAYS[0][1] + DAYS[0][2]
    assert len(session) >= MAX_LENGTH
    whole = recommender.recommend(session, top_k=5)
    assert whole == recommender.recommend(session[-(MAX_LENGTH - 1) :], top_k=5)


@pytest.mark.parametrize(("architecture", "task"), [("gpt2", "clm"), ("bert", "mlm")])
def test_events_are_sorted_by_time(fitted, architecture, task):
    _, recommender = fitted(architecture, task, FEATURES)
    events = raw_events([1, 2, 3, 4])
    shuffled = events.take([2, 0, 3, 1])
    assert recommender.recommend_after(shuffled, 9) == recommender.recommend_after(events, 9)


@pytest.fixture(scope="module")
def plain(fitted):
    return fitted("gpt2", "clm", ())[1]


@pytest.fixture(scope="module")
def rich(fitted):
    return fitted("gpt2", "clm", FEATURES)[1]


def test_the_top_items_come_first(plain):
    whole = plain.recommend([1, 2], top_k=1000)
    scores = [score for _, score in whole]
    assert scores == sorted(scores, reverse=True)
    assert len(whole) == len(plain.stored.candidates)
    assert plain.recommend([1, 2], top_k=3) == whole[:3]
    assert len({item for item, _ in whole}) == len(whole)


def test_only_items_of_train_sessions_are_recommended(plain):
    seen = {item for session in WINDOWS[0] for item in session}
    assert {item for item, _ in plain.recommend([KNOWN], top_k=1000)} == seen


def test_an_unknown_id_counts_as_unknown(plain):
    assert plain.recommend([12345, KNOWN], 3) == plain.recommend([67890, KNOWN], 3)
    assert plain.unknown_items(raw_events([NEW, KNOWN, 67890, NEW])) == [NEW, 67890]


def test_ids_become_the_data_sets_type_and_null_stays_null(plain):
    assert plain.item_column([1, "2", None]).to_pylist() == [1, 2, None]
    config = plain.stored.config
    config = replace(config, statistics=replace(config.statistics, item_type="string"))
    of_texts = Recommender(replace(plain.stored, config=config))
    assert of_texts.item_column([1, "None", None]).to_pylist() == ["1", "None", None]


def test_without_a_known_id_nothing_is_recommended_unless_asked_for(plain):
    with pytest.raises(DataError, match="knows none of the item ids of the session: 12345, 67890"):
        plain.recommend([12345, 67890, 12345], 3)
    assert plain.recommend([12345], 3, cold_start="model")


def test_popular_items_are_those_of_the_last_fitted_window(plain):
    counts = Counter(item for session in WINDOWS[0] for item in session)
    found = plain.recommend([12345], 1000, cold_start="popularity")
    assert dict(found) == counts
    assert [score for _, score in found] == sorted(counts.values(), reverse=True)


def test_with_a_known_id_the_model_answers_whatever_is_asked_for(plain):
    expected = plain.recommend([12345, KNOWN], 1000)
    assert plain.recommend([12345, KNOWN], 1000, cold_start="popularity") == expected


def test_of_equal_scores_the_older_item_comes_first(tmp_path):
    """As in results/predictions: torch.topk promises no order."""
    days = [[[item, item + 1] for item in range(0, 600, 2)], [[1, 2]]]
    windows = write_window_folder(tmp_path / "windows", days)
    sections = {"model": {"architecture": "popularity"}, "training": {"fit_last": False}}
    train_study(windows, tmp_path, sections)
    found = Recommender.load(tmp_path / "models").recommend([1], top_k=40)
    assert [item for item, _ in found] == list(range(40))


@pytest.mark.parametrize(
    ("items", "message"), [(["shoe"], "item id 'shoe'"), ([], "at least one event")]
)
def test_invalid_sessions_are_rejected(plain, items, message):
    with pytest.raises(DataError, match=message):
        plain.recommend(items, 3)


def test_a_model_with_features_rejects_ids_alone(rich):
    with pytest.raises(ConfigError, match=r"reads category, price besides the item id;.*--events"):
        rich.recommend([1, 2], 3)


def write_csv(path, events):
    pyarrow.csv.write_csv(events, path)
    return path


def test_events_are_read_from_a_csv(rich, tmp_path):
    events = raw_events([1, 2, 3])
    read = rich.read_events(write_csv(tmp_path / "events.csv", events))
    assert rich.recommend_after(read, 5) == rich.recommend_after(events, 5)


@pytest.mark.parametrize("column", ["item_id", "event_time", "category", "price"])
def test_a_csv_without_a_column_is_rejected(rich, tmp_path, column):
    path = write_csv(tmp_path / "events.csv", raw_events([1, 2, 3]).drop_columns([column]))
    with pytest.raises(DataError, match=f"columns .*{column}"):
        rich.read_events(path)


def test_a_csv_of_another_type_or_a_missing_one_is_rejected(rich, tmp_path):
    path = tmp_path / "events.csv"
    row = ",2026-01-01T00:00:00Z,1,2\n"
    path.write_text(f"item_id,event_time,category,price\n5{row}{row}")
    assert rich.read_events(path)["item_id"].to_pylist() == [5, None]
    path.write_text(f"item_id,event_time,category,price\n0x1F{row}")
    with pytest.raises(DataError, match=r"events\.csv: expected a CSV .*digits"):
        rich.read_events(path)
    with pytest.raises(DataError, match=r"nothing\.csv"):
        rich.read_events(tmp_path / "nothing.csv")


def test_a_folder_without_a_model_is_rejected(tmp_path):
    with pytest.raises(ModelFileError):
        Recommender.load(tmp_path)
