"""What a study writes beside the last item's ranks: by hand, by brute force, on two processes."""

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from dayahead.compare.paired_tests import compare
from dayahead.core.errors import ConfigError
from dayahead.core.files import write_parquet
from dayahead.metrics.tables import read_ranks, read_windows
from dayahead.model.checkpoint import load_model
from dayahead.windows.folder import window_path
from support.process_studies import CHOSEN, every_protocol
from support.tiny_settings import evaluated_windows, every_backbone, ranks_of, train_study
from support.window_folders import day, markov_days, write_window_folder

DAYS = markov_days(n_days=4, sessions_per_day=30, n_items=25)
BY_HAND = [
    [[11, 12], [11, 13], [11, 12, 11]],  # 11 x4, 12 x2, 13 x1
    [[12, 11], [19, 12], [11, 13, 12], [12, 14]],
    [[11, 19]],
]
POPULARITY = {"model": {"architecture": "popularity"}}


@pytest.fixture
def by_hand(tmp_path):
    return write_window_folder(tmp_path / "windows", BY_HAND)


@pytest.fixture(scope="module")
def windows(tmp_path_factory):
    return write_window_folder(tmp_path_factory.mktemp("windows"), DAYS, features=True)


def rows_of(out):
    return read_windows(out / "results" / "windows.csv", [1, 5])


def table_of(out, kind, window):
    return pq.ParquetFile(out / "results" / kind / f"{window}.parquet").read().to_pylist()


def test_train_metrics_by_hand(by_hand, tmp_path):
    """Popularity ranks the targets 12, 13 and 11 of day 0 second, third and first."""
    out = train_study(by_hand, tmp_path, POPULARITY | {"evaluation": {"train_sessions": 9}})
    first, _ = rows_of(out)
    assert first.train_metrics["recall_at_1"] == 1 / 3
    assert first.train_metrics["mrr_at_5"] == pytest.approx((1 / 2 + 1 / 3 + 1) / 3)
    assert first.metrics["recall_at_1"] == 1 / 4


@pytest.mark.parametrize("loader", ["memory", "nvtabular"])
def test_train_sessions_are_drawn_by_seed_and_window_and_change_nothing_else(
    windows, tmp_path, loader
):
    def run(name, n_sessions, seed=1):
        training = {"seed": seed, "loader": loader}
        model = {"architecture": "popularity"}  # which depends on no seed
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


def test_train_metrics_leave_training_alone(windows, tmp_path):
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


@every_backbone
def test_all_positions_rank_every_prefix_as_if_it_were_the_session(
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
        for place in range(1, len(session["item_id"])):
            columns = {
                name: torch.tensor([session[name][: place + 1]])
                for name in ("item_id", "category", "price")
            }
            scores = scorer(columns, torch.tensor([place]))[0].numpy()
            target = np.flatnonzero(stored.candidates == session["item_id"][place])
            rank = int((scores >= scores[target]).sum()) if len(target) else 0
            expected.append((session["session_id"], place, session["item_id"][place], rank))
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


def test_last_positions_are_among_all_and_two_runs_compare(windows, tmp_path):
    outs = [
        train_study(windows, tmp_path / name, {"evaluation": {"positions": name}})
        for name in ("last", "all")
    ]
    last, every = (read_ranks(out / "results", day(2)) for out in outs)
    ends = np.append(np.flatnonzero(every.positions == 1)[1:], len(every.ranks)) - 1
    assert np.array_equal(every.ranks[ends], last.ranks)
    comparison = compare(outs[1] / "results", outs[1] / "results", [5])
    assert comparison.n_targets == sum(len(s) - 1 for d in DAYS[1:] for s in d)
    assert comparison.n_sessions == 90


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
    # Day 1 adds: 12 x4, 11 x2, 13, 14, 19 x1 each; more are asked for than there are.
    out = train_study(by_hand, tmp_path, POPULARITY | {"evaluation": {"predictions": 99}})
    [row] = table_of(out, "predictions", day(2))
    assert row["items"] == [12, 11, 13, 19, 14]  # equals by the lower index
    assert row["scores"] == [4, 2, 1, 1, 1]
    assert row["rank"] == 5


@pytest.mark.parametrize("positions", ["last", "all"])
def test_the_item_listed_at_its_rank_is_the_target(windows, tmp_path, positions):
    evaluation = {"predictions": 5, "positions": positions}
    out = train_study(windows, tmp_path, {"evaluation": evaluation})
    ranks = read_ranks(out / "results", day(2))
    listed = table_of(out, "predictions", day(2))
    assert [row["rank"] or 0 for row in listed] == ranks.ranks.tolist()
    assert [row["target"] for row in listed] == ranks.targets.tolist()
    assert [row["session_id"] for row in listed] == ranks.session_ids.to_pylist()
    assert ("position" in listed[0]) == (positions == "all")
    within = [row for row in listed if row["rank"] and row["rank"] <= 5]
    assert len(within) > 5
    assert all(row["items"][row["rank"] - 1] == row["target_item"] for row in within)


def test_no_lists_are_written_unasked(windows, tmp_path):
    out = train_study(windows, tmp_path, POPULARITY)
    for kind in ("predictions", "attention"):
        assert [path.name for path in (out / "results" / kind).iterdir()] == ["README.txt"]


@pytest.mark.parametrize(
    ("architecture", "task", "n_read"),
    [("gpt2", "clm", -1), ("xlnet", "clm", -1), ("bert", "mlm", 0), ("xlnet", "mlm", 0)],
)
def test_attention_of_chosen_sessions(windows, tmp_path, architecture, task, n_read):
    """A model that looks back reads all but the last item; another reads a mask in its stead."""
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
    ("sections", "complaint"),
    [
        ({"model": {"architecture": "gru"}}, "gru has no attention weights"),
        (POPULARITY, "counting baseline has no attention"),
        (
            {"model": {"architecture": "xlnet"}, "task": {"name": "plm"}},
            "plm predictions come from",
        ),
        ({"evaluation": {"attention_of": ["1-000002", "x"]}}, "1 of 2 sessions .* first x; take"),
        ({"evaluation": {"attention_of": ["0-000001"]}}, "in none of the 3 windows evaluated"),
    ],
)
def test_what_cannot_be_had_is_refused_before_any_training(windows, tmp_path, sections, complaint):
    wanted = {"evaluation": {"attention_of": CHOSEN}} | sections
    with pytest.raises(ConfigError, match=complaint):
        train_study(windows, tmp_path, wanted)
    assert not (tmp_path / "results").exists()


@every_protocol
def test_two_processes_write_what_one_does(runs, name):
    alone, together = (folder / name for folder in runs)
    for one, other in zip(rows_of(alone), rows_of(together), strict=True):
        assert one.metrics == other.metrics
        assert one.train_metrics == other.train_metrics
        assert set(one.train_metrics) == set(one.metrics)
        assert other.train_loss == pytest.approx(one.train_loss, rel=1e-5)
    for window in evaluated_windows(alone):
        one, other = (table_of(out, "predictions", window) for out in (alone, together))
        assert [row.pop("scores") for row in one] == [
            pytest.approx(row.pop("scores"), rel=1e-4, abs=1e-5) for row in other
        ]
        assert one == other
    for window in (day(1), day(2)):
        one, other = (table_of(out, "attention", window) for out in (alone, together))
        assert [row.pop("weights") for row in one] == [
            pytest.approx(row.pop("weights"), abs=1e-5) for row in other
        ]
        assert one == other
