"""Train metrics, all positions, predictions, attention and pretrained items of a run."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file

from dayahead.core.errors import ConfigError
from dayahead.core.files import write_parquet
from dayahead.model.checkpoint import load_model
from dayahead.outputs.tables import read_ranks, read_windows
from dayahead.serve.recommender import Recommender
from dayahead.statistics.paired_tests import compare
from dayahead.windows.folder import window_path
from support.process_studies import CHOSEN, every_protocol
from support.tiny_settings import each_task, evaluated_windows, ranks_of, train_study
from support.window_folders import day, markov_days, write_window_folder

DAYS = markov_days(n_days=4, sessions_per_day=20, n_items=25)
BY_HAND = [
    [[11, 12], [11, 13], [11, 12, 11]],  # 11 x4, 12 x2, 13 x1
    [[12, 11], [19, 12], [11, 13, 12], [12, 14]],
    [[11, 19]],
]
POPULARITY = {"model": {"architecture": "popularity"}}


PRETRAINED_DAYS = [[[1, 2, 3], [3, 4]], [[4, 5, 6], [6, 1]], [[7, 8], [2, 9]]]
DIM = 8


@pytest.fixture
def by_hand(tmp_path):
    return write_window_folder(tmp_path / "windows", BY_HAND)


@pytest.fixture(scope="module")
def windows(tmp_path_factory):
    return write_window_folder(tmp_path_factory.mktemp("windows"), DAYS, features=True)


@pytest.fixture(scope="module")
def with_lists(windows, tmp_path_factory):
    """Studies that rank the last positions and all, with predictions."""
    return {
        positions: train_study(
            windows,
            tmp_path_factory.mktemp(positions),
            {"evaluation": {"predictions": 5, "positions": positions}},
        )
        for positions in ("last", "all")
    }


def rows_of(out):
    return read_windows(out / "results" / "windows.csv", [1, 5])


def table_of(out, kind, window):
    return pq.ParquetFile(out / "results" / kind / f"{window}.parquet").read().to_pylist()


def test_train_metrics_by_hand(by_hand, tmp_path):
    """Popularity gives the targets 12, 13 and 11 of day 0 the ranks 2, 3 and 1."""
    out = train_study(by_hand, tmp_path, POPULARITY | {"evaluation": {"train_sessions": 9}})
    first, _ = rows_of(out)
    assert first.train_metrics["recall_at_1"] == 1 / 3
    assert first.train_metrics["mrr_at_5"] == pytest.approx((1 / 2 + 1 / 3 + 1) / 3)
    assert first.metrics["recall_at_1"] == 1 / 4


@pytest.mark.parametrize("loader", ["memory", pytest.param("stream", marks=pytest.mark.slow)])
def test_train_sessions_are_sampled_by_seed_and_do_not_change_ranks(windows, tmp_path, loader):
    def run(name, n_sessions, seed=1):
        training = {"seed": seed, "loader": loader}
        model = {"architecture": "popularity"}  # does not depend on the seed
        evaluation = {"train_sessions": n_sessions, "split": "test"}
        sections = {"training": training, "model": model, "evaluation": evaluation}
        return train_study(windows, tmp_path / name, sections)

    none, some, other = run("none", 0), run("some", 7), run("other", 7, seed=2)
    assert [row.train_metrics for row in rows_of(none)] == [{}] * 3
    found = [row.train_metrics for row in rows_of(some)]
    sevenths = [7 * metrics["recall_at_5"] for metrics in found]
    assert sevenths == pytest.approx([round(value) for value in sevenths])
    assert found != [row.train_metrics for row in rows_of(other)]
    assert all(
        np.array_equal(ranks_of(none, d), ranks_of(some, d)) for d in evaluated_windows(none)
    )


def test_train_metrics_do_not_change_the_model(windows, tmp_path):
    outs = [
        train_study(
            windows,
            tmp_path / str(n),
            {"evaluation": {"train_sessions": n}, "model": {"dropout": 0.2}},
        )
        for n in (0, 9)
    ]
    first, second = (out / "models" / "model.safetensors" for out in outs)
    assert first.read_bytes() == second.read_bytes()


def test_a_window_without_train_sessions_has_no_train_metrics(by_hand, tmp_path):
    path = window_path(by_hand, "day", day(1), "train")
    write_parquet(path, pq.read_table(path, partitioning=None).slice(0, 0))
    out = train_study(by_hand, tmp_path, POPULARITY | {"evaluation": {"train_sessions": 2}})
    first, second = rows_of(out)
    assert first.train_metrics
    assert second.train_metrics == {}


@each_task
def test_at_all_positions_each_prefix_is_ranked_like_a_session(
    windows, tmp_path, architecture, task
):
    sections = {
        "model": {"architecture": architecture, "features": ["category", "price"]},
        "task": {"name": task},
        "training": {"fit_last": False},
        "evaluation": {"positions": "all", "split": "test"},
    }
    out = train_study(windows, tmp_path, sections, last=day(1))
    stored = load_model(out / "models")
    table = pq.read_table(
        windows / f"session_start_date={day(1)}-test.parquet", partitioning=None
    ).to_pylist()
    scorer = stored.model.scorer(torch.from_numpy(stored.candidates).long())
    expected = []
    for session in table:
        for position in range(1, len(session["item_id"])):
            columns = {
                name: torch.tensor([session[name][: position + 1]])
                for name in ("item_id", "category", "price")
            }
            scores = scorer(columns, torch.tensor([position]))[0].numpy()
            target = np.flatnonzero(stored.candidates == session["item_id"][position])
            rank = int((scores >= scores[target]).sum()) if len(target) else 0
            expected.append((session["session_id"], position, session["item_id"][position], rank))
    found = read_ranks(out / "results", day(1))
    assert [
        *zip(
            found.session_ids.to_pylist(),
            found.positions.tolist(),
            found.targets.tolist(),
            found.ranks.tolist(),
            strict=True,
        )
    ] == expected
    [row] = rows_of(out)
    assert row.n_sessions == len(table) < len(expected)
    assert row.metrics["recall_at_5"] == np.mean([0 < rank <= 5 for *_, rank in expected])


def test_all_positions_include_the_last_and_can_be_compared(with_lists):
    outs = with_lists["last"], with_lists["all"]
    last, every = (read_ranks(out / "results", day(2)) for out in outs)
    ends = np.append(np.flatnonzero(every.positions == 1)[1:], len(every.ranks)) - 1
    assert np.array_equal(every.ranks[ends], last.ranks)
    comparison = compare([outs[1] / "results"], [outs[1] / "results"], [5])
    assert comparison.n_targets == sum(len(s) - 1 for d in DAYS[1:] for s in d)
    assert comparison.n_sessions == 60


def test_predictions_by_hand(by_hand, tmp_path):
    out = train_study(by_hand, tmp_path, POPULARITY | {"evaluation": {"predictions": 2}})
    listed = table_of(out, "predictions", day(1))
    assert listed[2] == {
        "session_id": "1-000002",
        "target": 3,
        "target_item": 12,
        "rank": 2,
        "items": [11, 12],
        "scores": [4.0, 2.0],
    }
    assert [(row["target_item"], row["rank"]) for row in listed] == [
        (11, 1),
        (12, 2),
        (12, 2),
        (14, None),
    ]
    # Day 1 adds: 12 x4, 11 x2, 13, 14, 19 x1 each; there are fewer than 99 items.
    out = train_study(by_hand, tmp_path, POPULARITY | {"evaluation": {"predictions": 99}})
    [row] = table_of(out, "predictions", day(2))
    assert row["items"] == [12, 11, 13, 19, 14]  # ties in order of index
    assert row["scores"] == [4, 2, 1, 1, 1]
    assert row["rank"] == 5


@pytest.mark.parametrize("positions", ["last", "all"])
def test_the_predicted_item_at_the_targets_rank_is_the_target(with_lists, positions):
    out = with_lists[positions]
    ranks = read_ranks(out / "results", day(2))
    listed = table_of(out, "predictions", day(2))
    assert [row["rank"] or 0 for row in listed] == ranks.ranks.tolist()
    assert [row["target"] for row in listed] == ranks.targets.tolist()
    assert [row["session_id"] for row in listed] == ranks.session_ids.to_pylist()
    assert ("position" in listed[0]) == (positions == "all")
    within = [row for row in listed if row["rank"] and row["rank"] <= 5]
    assert len(within) > 5
    assert all(row["items"][row["rank"] - 1] == row["target_item"] for row in within)


def test_predictions_and_attention_are_off_by_default(by_hand, tmp_path):
    out = train_study(by_hand, tmp_path, POPULARITY)
    for kind in ("predictions", "attention"):
        assert [path.name for path in (out / "results" / kind).iterdir()] == ["README.txt"]


@pytest.mark.parametrize(
    ("architecture", "task", "n_read"),
    [
        ("gpt2", "clm", -1),
        ("bert", "mlm", 0),
        pytest.param("xlnet", "clm", -1, marks=pytest.mark.slow),
        pytest.param("xlnet", "mlm", 0, marks=pytest.mark.slow),
    ],
)
def test_attention_of_chosen_sessions(windows, tmp_path, architecture, task, n_read):
    """A causal model reads all but the last item; with `mlm` a mask replaces the last item."""
    sections = {
        "model": {"architecture": architecture, "n_layer": 2},
        "task": {"name": task},
        "evaluation": {"attention_of": CHOSEN},
    }
    out = train_study(windows, tmp_path, sections)
    assert not (out / "results" / "attention" / f"{day(3)}.parquet").exists()
    for number, id_, session in ((1, CHOSEN[0], DAYS[1][2]), (2, CHOSEN[1], DAYS[2][4])):
        rows = table_of(out, "attention", day(number))
        n = len(session) + n_read
        assert [(r["layer"], r["head"], r["query"]) for r in rows] == [
            (layer, head, query) for layer in range(2) for head in range(2) for query in range(n)
        ]
        for row in rows:
            assert row["session_id"] == id_
            assert row["keys"] == list(range(n))
            assert sum(row["weights"]) == pytest.approx(1, abs=1e-5)
            if task == "clm":
                assert not any(row["weights"][row["query"] + 1 :])


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"model": {"architecture": "gru"}}, "gru has no attention weights"),
        (POPULARITY, "a baseline has no attention"),
        (
            {"model": {"architecture": "xlnet"}, "task": {"name": "plm"}},
            "plm predictions come from",
        ),
        ({"evaluation": {"attention_of": ["1-000002", "x"]}}, "1 of 2 sessions .* first x; take"),
        ({"evaluation": {"attention_of": ["0-000001"]}}, "in none of the 3 windows evaluated"),
    ],
)
def test_attention_that_does_not_exist_is_rejected_before_training(
    windows, tmp_path, sections, message
):
    chosen = {"evaluation": {"attention_of": CHOSEN}} | sections
    with pytest.raises(ConfigError, match=message):
        train_study(windows, tmp_path, chosen)
    assert not (tmp_path / "results").exists()


@every_protocol
def test_two_processes_write_what_one_writes(runs, name):
    alone, parallel = (folder / name for folder in runs)
    for one, other in zip(rows_of(alone), rows_of(parallel), strict=True):
        assert one.metrics == other.metrics
        assert one.train_metrics == other.train_metrics
        assert set(one.train_metrics) == set(one.metrics)
        assert other.train_loss == pytest.approx(one.train_loss, rel=1e-5)
    for window in evaluated_windows(alone):
        one, other = (table_of(out, "predictions", window) for out in (alone, parallel))
        assert [row.pop("scores") for row in one] == [
            pytest.approx(row.pop("scores"), rel=1e-4, abs=1e-5) for row in other
        ]
        assert one == other
    for window in (day(1), day(2)):
        one, other = (table_of(out, "attention", window) for out in (alone, parallel))
        assert [row.pop("weights") for row in one] == [
            pytest.approx(row.pop("weights"), abs=1e-5) for row in other
        ]
        assert one == other


def vector_of(item):
    return [item + column / 10 for column in range(DIM)]


@pytest.fixture
def vectors(tmp_path):
    """A file of vectors of every second item and of one that is not in the log."""
    values = [8, 6, 4, 2, 100]
    lists = pa.array([vector_of(value) for value in values], pa.list_(pa.float32()))
    pq.write_table(pa.table({"value": values, "vector": lists}), tmp_path / "vectors.parquet")
    return str(tmp_path / "vectors.parquet")


def stored_rows(out):
    vocabulary = pq.read_table(out / "models" / "vocabulary" / "item_id.parquet")
    tensors = load_file(out / "models" / "model.safetensors")
    rows = tensors["weights.inputs.items.weight"]
    return dict(zip(vocabulary["value"].to_pylist(), rows, strict=True)), tensors["weights.bias"]


def study_with_vectors(tmp_path, **changes):
    folder = write_window_folder(tmp_path / "windows", PRETRAINED_DAYS)
    return train_study(folder, tmp_path, {"model": {"item_embedding_dim": DIM, **changes}})


def test_frozen_items_keep_their_initial_vectors(tmp_path, vectors):
    out = study_with_vectors(tmp_path, pretrained_items=vectors, freeze_items=True)
    rows, bias = stored_rows(out)
    assert set(rows) == set(range(1, 10))
    for item in (2, 4, 6, 8):
        torch.testing.assert_close(rows[item], torch.tensor(vector_of(item)))
    assert bias.any()
    random_rows, _ = stored_rows(study_with_vectors(tmp_path / "other", freeze_items=True))
    assert all(torch.equal(rows[item], random_rows[item]) for item in (1, 3, 5, 7, 9))


def test_items_are_trained_from_their_pretrained_vectors(tmp_path, vectors):
    rows, _ = stored_rows(study_with_vectors(tmp_path, pretrained_items=vectors))
    for item in (2, 4, 6, 8):
        initial = torch.tensor(vector_of(item))
        assert not torch.equal(rows[item], initial)
        torch.testing.assert_close(rows[item], initial, rtol=0, atol=0.2)


def test_a_saved_model_does_not_need_the_file(tmp_path, vectors):
    out = study_with_vectors(tmp_path, pretrained_items=vectors)
    (tmp_path / "vectors.parquet").unlink()
    assert len(Recommender.load(out / "models").recommend([1, 2], 3)) == 3


def test_vectors_of_another_size_are_rejected_before_training(tmp_path, vectors):
    with pytest.raises(ConfigError, match="expected 16 numbers in each"):
        study_with_vectors(tmp_path, pretrained_items=vectors, item_embedding_dim=16)
    assert not (tmp_path / "results" / "windows.csv").exists()
