"""The comparison with peers: our side, the turns, the table. The peers themselves run by hand."""

import re
import sys
from pathlib import Path

import pytest
import torch

import peers
from dayahead.distributed.process import Process
from dayahead_worker import params_of, works_of
from history import entries
from peers import Program, compare, main, shared_settings, table_of
from worker import Answer, Worker, WorkerError
from workload import SINGLE

ROOT = Path(__file__).parents[3]
TINY = {"d_model": 8, "n_layer": 1, "n_head": 2, "batch_size": 16, "learning_rate": 0.01}
FAKE = f"""
import sys
sys.path.insert(0, {str(ROOT / "benchmarks")!r})
from worker import answer_requests, settings

print("a line that no one asked for")
factor = settings().get("factor", 1)
works = {{"training": lambda: (4, factor * 0.5), "evaluation": lambda: (2, 1.0)}}
works["failure"] = lambda: sys.exit("out of order")
works["echo"] = lambda n, loss: (n, loss)
works["spin"] = lambda n: (sum(i * i for i in range(n)), 0.0)
answer_requests(works)
"""


@pytest.fixture
def fake(tmp_path):
    """A program that does nothing, at once."""
    file = tmp_path / "fake.py"
    file.write_text(FAKE)
    return file


@pytest.fixture
def programs(fake):
    names = ("dayahead", "dayahead float32", "peer")
    return [Program(name, Path(sys.executable), fake) for name in names]


@pytest.mark.long
@pytest.mark.parametrize(("architecture", "task"), peers.STUDIES)
@pytest.mark.parametrize("precision", ["auto", pytest.param("float32", marks=pytest.mark.slow)])
def test_our_side_learns_the_sessions(architecture, task, precision, tmp_path, monkeypatch):
    monkeypatch.setattr(peers, "N_ITEMS", 50)
    given = shared_settings(tmp_path / "sessions.npz", n_sessions=64, threads=1)
    given |= {**TINY, "architecture": architecture, "task": task, "precision": precision}
    params = params_of(given)
    assert (params.model.d_model, params.training.batch_size, params.task.name) == (8, 16, task)
    assert params.training.precision == precision
    works = works_of(Process(SINGLE, torch.device("cpu")), given, params)
    losses = [works["training"]() for _ in range(15)]
    assert {n for n, _ in losses} == {64}
    assert losses[-1][1] < losses[0][1] < 5
    n_sessions, recall = works["evaluation"]()
    assert n_sessions == 64
    assert 20 / 50 < recall <= 1


def test_sessions_are_numbered_from_0_for_every_program(tmp_path, monkeypatch):
    monkeypatch.setattr(peers, "N_ITEMS", 50)
    given = shared_settings(tmp_path / "sessions.npz", n_sessions=64, threads=1)
    stored = peers.np.load(given["sessions"])
    assert len(stored["offsets"]) == 65
    assert (stored["items"].min(), stored["offsets"][-1]) == (0, len(stored["items"]))
    assert stored["items"].max() < 50


@pytest.mark.slow
def test_programs_take_turns(programs, tmp_path):
    answers = compare(programs, {"factor": 3}, rounds=2, logs=tmp_path)
    assert {work: len(rounds) for work, rounds in answers.items()} == {
        "training": 2,
        "evaluation": 2,
    }
    for turn in answers["training"]:
        assert {(name, each.sessions, each.result) for name, each in turn.items()} == {
            (program.name, 4, 1.5) for program in programs
        }
    assert "no one asked for" in (tmp_path / "peer.log").read_text()


def test_a_program_that_ends_is_named_with_its_last_words(fake, tmp_path):
    with (
        Worker([sys.executable], fake, {}, tmp_path / "log") as worker,
        pytest.raises(WorkerError, match=r"fake: .*exit status 1.*out of order.*log"),
    ):
        worker.do("failure")
    missing = tmp_path / "missing.py"
    with pytest.raises(WorkerError, match=r"missing: .*exit status 2.*missing\.py"):
        Worker([sys.executable], missing, {}, tmp_path / "log")


def test_a_work_gets_its_arguments_and_the_cpu_time_is_that_of_the_work(fake, tmp_path):
    with Worker([sys.executable], fake, {}, tmp_path / "log") as worker:
        answer = worker.do("echo", n=3, loss=0.25)
        assert (answer.sessions, answer.result) == (3, 0.25)
        assert answer.user_seconds < 0.1
        spun = worker.do("spin", n=3_000_000)
        assert 0.05 < spun.user_seconds < spun.seconds + 0.1


def test_ratios_are_taken_within_a_turn():
    def turn(ours, float32, theirs):
        times = {"dayahead": ours, "dayahead float32": float32, "peer": theirs}
        return {name: Answer(seconds, 12, 0.5) for name, seconds in times.items()}

    rounds = [turn(1, 2, 4), turn(2, 4, 12), turn(3, 3, 15)]
    rows, figures = table_of("gpt2/clm", {"training": rounds})
    assert [row["sessions/s"] for row in rows] == ["6", "4", "1"]
    assert rows[2]["dayahead is"] == "5.00 x (4.00-6.00)"
    assert rows[2]["dayahead float32 is"] == "3.00 x (2.00-5.00)"
    ratio = figures["gpt2/clm training, dayahead / peer"]
    assert (ratio.value, ratio.least, ratio.most) == (5, 4, 6)


@pytest.mark.slow
def test_the_table_is_printed_and_kept(programs, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(peers, "STUDIES", {("gpt2", "clm"): programs})
    monkeypatch.setattr(peers, "ENVIRONMENTS", tmp_path)
    words = ["--sessions", "8", "--rounds", "1", "--threads", "1"]
    main(words, tmp_path / "history.jsonl")
    printed = capsys.readouterr().out
    assert re.search(r"gpt2/clm +evaluation +peer ", printed)
    (entry,) = entries(tmp_path / "history.jsonl")
    assert entry["settings"] == {"sessions": 8, "rounds": 1, "threads": 1}
    assert "gpt2/clm training, dayahead / peer" in entry["figures"]


@pytest.mark.parametrize("peer", ["transformers4rec", "rectools", "recbole"])
def test_peers_compute_with_our_torch(peer):
    def torch_of(name):
        return re.findall(r"^torch==\S+", (ROOT / name).read_text(), re.MULTILINE)

    assert torch_of(f"benchmarks/{peer}.txt") == torch_of("requirements.txt") != []
    assert (ROOT / "benchmarks" / f"{peer}_worker.py").exists()
