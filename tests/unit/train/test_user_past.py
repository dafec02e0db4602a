"""Events before a session: models use them in training, evaluation and recommendations."""

from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pytest
import torch

from dayahead.core.columns import EVENT_TIME, ITEM_ID
from dayahead.core.errors import ConfigError
from dayahead.distributed.process import Rank
from dayahead.serve.raw_sessions import RawSessions
from dayahead.serve.recommender import Recommender
from dayahead.serve.request import Options
from dayahead.train.batches import Sessions
from dayahead.train.data_loading import Loader
from dayahead.train.run import Run
from dayahead.windows.folder import WindowFolder
from support.tiny_settings import ranks_of, tiny_params, train_study
from support.window_folders import add_pasts, day, events_before, raw_events, write_window_folder

N_SIGNALS = 4
N_WITHOUT_PAST = 20
"""Sessions of each day, the first ones, whose users have no past."""
LONGEST = 5


def planted_days(n_days: int = 2, n_sessions: int = 120) -> tuple[list, list]:
    """Sessions [a, b] with a random, and pasts whose last item determines b; some have no past."""
    rng = np.random.default_rng(1)
    days, pasts = [], []
    for _ in range(n_days):
        signals = rng.integers(0, N_SIGNALS, n_sessions)
        days.append([[int(rng.integers(N_SIGNALS)), N_SIGNALS + int(signal)] for signal in signals])
        noise = rng.integers(0, N_SIGNALS, (n_sessions, 4))
        pasts.append(
            [
                [*noise[i, : rng.integers(5)].tolist(), int(signal)] if i >= N_WITHOUT_PAST else []
                for i, signal in enumerate(signals)
            ]
        )
    return days, pasts


DAYS, PASTS = planted_days()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A window folder with past columns; session `d-00000i` has the past PASTS[d][i]."""
    path = tmp_path_factory.mktemp("windows")
    write_window_folder(path, DAYS, features=True, max_length=4)
    add_pasts(path, PASTS, LONGEST)
    return path


def study(folder, out, architecture="gpt2", task="clm", epochs=1, *, fit_last=False, **changes):
    training = {"epochs": epochs, "batch_size": 12, "learning_rate": 0.02, "fit_last": fit_last}
    sections = {
        "model": {"architecture": architecture, "d_model": 32, **changes},
        "task": {"name": task},
        "training": training,
        "memory": {
            "n_candidates": 20,
            "head_width": 8,
            "first_epochs": 20 * epochs,
            "batch_size": 12,
        },
        "evaluation": {"candidates": "all"},
    }
    sections["model"]["catalogue"] = "full"
    return train_study(folder, out, sections)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("architecture", "task"),
    [("gpt2", "clm"), ("memory", "clm"), ("xlnet", "clm"), ("bert", "mlm")],
)
def test_a_model_learns_from_the_past(folder, tmp_path, architecture, task):
    """If a target leaked, sessions without a past would be predicted correctly too."""
    for past_length, has_learned in ((3, True), (0, False)):
        out = tmp_path / str(past_length)
        study(folder, out, architecture, task, epochs=20, past_length=past_length)
        is_right = ranks_of(out, day(1)) == 1
        assert is_right[:N_WITHOUT_PAST].mean() < 0.6
        assert (is_right[N_WITHOUT_PAST:].mean() > 0.8) == has_learned


@pytest.mark.long
@pytest.mark.parametrize(
    "model",
    [{}, {"architecture": "memory"}, {"architecture": "memory", "network": "gpt2"}],
    ids=["gpt2", "memory", "memory with gpt2"],
)
def test_evaluate_and_recommend_give_the_same_scores_after_a_past(folder, tmp_path, model):
    study(folder, tmp_path, features=["category"], past_length=3, **model)
    recommender = Recommender.load(tmp_path / "models")
    store = WindowFolder(folder)
    own = [ITEM_ID, EVENT_TIME, "category"]
    columns = [*own, *(f"bef_{name}" for name in own)]
    sessions = Sessions.from_table(store.read(store.windows[1], "train", columns), 3)
    batch = sessions.gather(torch.arange(len(sessions)), Rank(0, 1))
    stored = recommender.stored
    scorer = stored.model.scorer(torch.from_numpy(stored.candidates).long())
    wanted = scorer(batch.columns, batch.lengths - 1).sort(descending=True).values
    for row in range(N_WITHOUT_PAST - 4, N_WITHOUT_PAST + 8):
        session, past = raw_events(DAYS[1][row][:-1], 1, row), events_before(PASTS[1][row], 1, row)
        both = pa.concat_tables([past, session])  # the past is what lies before the session
        for given in (past, both):
            live = [score for _, score in recommender.recommend_after(session, 99, given)]
            np.testing.assert_allclose(live, wanted[row], rtol=1e-5, atol=1e-5)
        if past.num_rows:
            alone = [score for _, score in recommender.recommend_after(session, 99)]
            assert not np.allclose(alone, live)
    rows = range(N_WITHOUT_PAST - 4, N_WITHOUT_PAST + 8)
    at_once = RawSessions.of(
        [raw_events(DAYS[1][row][:-1], 1, row) for row in rows],
        [events_before(PASTS[1][row], 1, row) if PASTS[1][row] else None for row in rows],
    )
    found = recommender.rank(at_once, [Options(top_k=99)] * len(rows))
    np.testing.assert_allclose(found.scores, wanted[rows], rtol=1e-5, atol=1e-5)


def test_items_of_the_past_are_known_and_seen(folder, tmp_path):
    """A new session of an old user is answered by the model, --exclude-seen leaves both out."""
    study(folder, tmp_path, past_length=3)
    recommender = Recommender.load(tmp_path / "models")
    row = next(row for row, past in enumerate(PASTS[1]) if past)
    new, past = raw_events([12345]), events_before(PASTS[1][row])
    whole = recommender.recommend_after(new, 1000, past)
    assert {*PASTS[1][row]} & {item for item, _ in whole}
    rest = [(item, score) for item, score in whole if item not in PASTS[1][row]]
    assert recommender.recommend_after(new, 1000, past, exclude_seen=True) == rest


def test_a_baseline_reads_no_past_whatever_past_length_says(folder, tmp_path):
    study(folder, tmp_path, "vstan", past_length=3)
    recommender = Recommender.load(tmp_path / "models")
    with pytest.raises(ConfigError, match="reads no past events"):
        recommender.recommend_after(raw_events([1]), 3, raw_events([2]))


def test_resuming_memory_with_a_past_is_going_on(folder, tmp_path, monkeypatch):
    """The second fit starts from the first one's state on disk."""
    settings = {"architecture": "memory", "past_length": 3, "fit_last": True}
    study(folder, tmp_path / "whole", **settings)
    with monkeypatch.context() as patch:
        patch.setattr(Run, "evaluate", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            study(folder, tmp_path / "resumed", **settings)
    study(folder, tmp_path / "resumed", **settings)
    whole, resumed = (tmp_path / name / "models" for name in ("whole", "resumed"))
    weights = "model.safetensors"
    assert (whole / weights).read_bytes() == (resumed / weights).read_bytes()


def test_explanations_name_the_past(folder, tmp_path):
    study(folder, tmp_path, "memory", past_length=3)
    recommender = Recommender.load(tmp_path / "models")
    session, past = raw_events([1], 1), events_before([2], 1)
    [parts] = recommender.explain(session, [2], past)
    [without] = recommender.explain(session, [2])
    assert parts.keys() == without.keys()
    assert parts["past.is_last"] != 0
    assert parts != without
    [cold] = recommender.explain(raw_events([12345], 1), [2], past)
    assert cold["past.is_last"] != 0
    assert recommender.explain(raw_events([12345], 1), [2]) == [{}]


def loader_of(folder, past_length, architecture="gpt2", network="none", **training):
    model = {"past_length": past_length, "architecture": architecture, "network": network}
    sections = {"model": model, "training": training, "evaluation": {"split": "test"}}
    return Loader(WindowFolder(folder), tiny_params(sections))


def last_batch(loader):
    """The batch of the longest sessions of day 1."""
    return list(loader.evaluation_batches(loader.folder.windows[1], Rank(0, 1)))[-1]


def test_the_loader_reads_at_most_past_length_events(folder):
    loader = loader_of(folder, 2)
    assert loader.columns == [ITEM_ID, "bef_item_id"]
    batch = last_batch(loader)
    assert set(batch.columns) == {ITEM_ID, "_is_past"}
    assert batch.columns["_is_past"].sum(1).tolist() == batch.global_past.tolist()
    assert int(batch.global_past.max()) == 2
    assert set((batch.lengths - batch.global_past).tolist()) == {2}


def test_memory_reads_the_past_with_a_network_or_without(folder):
    for network in ("none", "gpt2"):
        batch = last_batch(loader_of(folder, 2, "memory", network=network))
        assert set(batch.columns) == {ITEM_ID, EVENT_TIME, "_is_past"}
        assert int(batch.global_past.max()) == 2


@pytest.mark.parametrize(("past_length", "architecture"), [(0, "gpt2"), (2, "transitions")])
def test_without_past_length_or_for_baselines_the_past_is_not_read(
    folder, past_length, architecture
):
    batch = last_batch(loader_of(folder, past_length, architecture))
    assert set(batch.columns) == {ITEM_ID}
    assert set(batch.lengths.tolist()) == {2}
    assert not batch.global_past.any()


@pytest.mark.parametrize("architecture", ["gpt2", "memory"])
def test_a_past_length_above_the_data_sets_is_rejected(folder, architecture):
    loader_of(folder, LONGEST, architecture)
    with pytest.raises(ConfigError, match=r"past_length: 6.*at most 5.*past_max_length.*to 6"):
        loader_of(folder, LONGEST + 1, architecture)


def test_a_past_is_streamed_too(folder):
    read, streamed = (
        last_batch(loader_of(folder, 2, loader=name)) for name in ("memory", "stream")
    )
    assert torch.equal(streamed.columns[ITEM_ID], read.columns[ITEM_ID])
    assert torch.equal(streamed.global_past, read.global_past)
    assert read.global_past.any()
