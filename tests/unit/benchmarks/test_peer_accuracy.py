"""Peers under the protocol: what a peer sees and when, ranks of its scores, the table."""

import json
import sys
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

import peer_accuracy
from dayahead.windows.folder import WindowFolder
from peer_accuracy import measured
from peer_windows import Ours, Peer
from peers import Program
from support.tiny_settings import tiny_params
from support.window_folders import write_window_folder
from worker import Worker

ROOT = Path(__file__).parents[3]
DAYS = [
    [[10, 11, 12], [11, 12], [12, 12, 11], [13, 10]],
    [[12, 11], [14, 12, 13], [11, 14], [10, 13, 15, 15]],
    [[15, 12], [16, 16], [11, 10, 12], [14, 15, 11], [13, 17]],
]
"""Raw items; each less 10 is its catalogue index less 2, its place in the order of first sight."""
EVERY = {"split": "all", "windows": None}
FAKE = f"""
import json
import sys
sys.path.insert(0, {str(ROOT / "benchmarks")!r})
import numpy as np
from worker import answer_requests, settings

counts = np.zeros(settings()["n_items"], np.float32)

def read(work, path, **more):
    stored = np.load(path)
    sessions = [each.tolist() for each in np.split(stored["items"], stored["offsets"][1:-1])]
    print(json.dumps([work, sessions, more]), flush=True)
    return stored["items"], sessions

def fit(sessions, epochs):
    items, found = read("fit", sessions, epochs=epochs)
    counts[:] += np.bincount(items, minlength=len(counts))
    return len(found), 0.5

def score(sessions, scores):
    _, found = read("score", sessions)
    np.save(scores, np.tile(counts, (len(found), 1)))
    return len(found), 0.0

print(json.dumps(["start", [], {{}}]), flush=True)
answer_requests({{"fit": fit, "score": score}})
"""


@pytest.fixture
def folder(tmp_path):
    """The windows of DAYS."""
    return WindowFolder(write_window_folder(tmp_path / "windows", DAYS))


@pytest.fixture
def program(tmp_path):
    """A peer that scores items by how often it has seen them, and logs what it gets."""
    file = tmp_path / "counting.py"
    file.write_text(FAKE)
    return Program("counting", Path(sys.executable), file)


@pytest.fixture
def peer_of(folder, program, tmp_path):
    """Start the peer; return it, and a function that returns what it has got."""
    started = []

    def create(**more):
        given, log = {"n_items": 8}, tmp_path / "log"
        logs = []  # of earlier starts: each has a new one

        def start():
            if log.exists():
                logs.append(log.read_text())
            return Worker([program.python], program.file, given, log)

        params = tiny_params({"model": {"architecture": "popularity"}})
        peer = Peer(start, folder, params, 3, tmp_path, **more)
        started.append(peer)

        def received():
            return [json.loads(line) for line in "".join([*logs, log.read_text()]).splitlines()]

        return peer, received

    yield create
    for peer in started:
        peer.close()


def numbered(days):
    return [[item - 10 for item in session] for session in chain.from_iterable(days)]


def expected_ranks(day):
    """Ranks of last items by clicks on earlier days, ties against; own items that are new last."""
    counts = np.bincount(list(chain.from_iterable(numbered(DAYS[:day]))), minlength=8)
    ranks = []
    for *prefix, target in numbered(DAYS[day : day + 1]):
        scores = {item: count for item, count in enumerate(counts) if count} | {
            item: -1 for item in prefix if not counts[item]
        }
        better = sum(score >= scores.get(target, np.inf) for score in scores.values())
        ranks.append(better if target in scores else 0)
    return ranks


def test_scores_of_a_peer_are_ranked_by_our_rules(peer_of, folder):
    peer, _ = peer_of()
    seen = np.zeros(0, np.int32)
    for day in (1, 2):
        window = folder.windows[day - 1]
        peer.fit(window)
        seen = np.union1d(seen, folder.items_in(window, "train"))
        assert peer.ranks(folder.windows[day], seen).tolist() == expected_ranks(day)


@pytest.mark.parametrize("is_from_scratch", [False, True])
def test_a_peer_sees_no_window_before_it_is_ranked_on_it(peer_of, folder, is_from_scratch):
    peer, received = peer_of(is_from_scratch=is_from_scratch)
    measured(peer, folder, EVERY)
    got = received()
    works = ["start", "fit", "score", *["start"] * is_from_scratch, "fit", "score"]
    assert [work for work, _, _ in got] == works
    first, second = (sessions for work, sessions, _ in got if work == "fit")
    assert sorted(first) == sorted(numbered(DAYS[:1]))
    assert sorted(second) == sorted(numbered(DAYS[0 if is_from_scratch else 1 : 2]))
    assert {more["epochs"] for work, _, more in got if work == "fit"} == {3}
    # The target, a session's last item, is not shown.
    shown = [sessions for work, sessions, _ in got if work == "score"]
    for day, sessions in zip((1, 2), shown, strict=True):
        assert sorted(sessions) == sorted(each[:-1] for each in numbered(DAYS[day : day + 1]))


@pytest.mark.long
def test_figures_are_means_over_windows_of_the_same_sessions_for_all(peer_of, folder):
    peer, _ = peer_of()
    cell = measured(peer, folder, EVERY)
    gains = [
        np.mean([1 / np.log2(1 + rank) if rank else 0 for rank in expected_ranks(day)])
        for day in (1, 2)
    ]
    assert cell["ndcg_at_20"] == pytest.approx(np.mean(gains))
    params = tiny_params({"model": {"architecture": "transitions"}})
    ours = measured(Ours(params, folder), folder, EVERY)
    assert (ours["windows"], ours["sessions"]) == (cell["windows"], cell["sessions"]) == (2, 9)
    assert measured(peer_of()[0], folder, EVERY | {"windows": 1})["windows"] == 1


def test_cells_are_printed_and_not_measured_again(folder, program, tmp_path, monkeypatch, capsys):
    params = tiny_params({"model": {"architecture": "popularity"}})
    monkeypatch.setattr(peer_accuracy, "FOLDER", tmp_path)
    monkeypatch.setattr(peer_accuracy, "windows_of", lambda _: (params, folder))
    monkeypatch.setattr(peer_accuracy, "PEERS", {"Counting": program})
    words = ["--epochs", "3", "--datasets", "synthetic", "--models", "popularity", "Counting"]
    run = partial(peer_accuracy.main, words)
    run()
    printed = capsys.readouterr().out
    kept = (tmp_path / "cells.jsonl").read_text()
    assert [json.loads(line)["key"]["model"] for line in kept.splitlines()] == words[-2:]
    assert "| Counting, 3 epochs" in printed
    program.file.unlink()
    run()
    assert (tmp_path / "cells.jsonl").read_text() == kept
    assert capsys.readouterr().out.splitlines()[-1] == printed.splitlines()[-1]
    peer_accuracy.main([*words[:-1], "--windows", "1"])
    assert len((tmp_path / "cells.jsonl").read_text().splitlines()) == 3
