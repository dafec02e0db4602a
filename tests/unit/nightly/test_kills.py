"""Nights that are killed at any change of the disk and run again: same decisions, same bytes."""

import os
import random
import traceback

import pytest

from support.pretended_nights import (
    ordinary_day,
    pretended_night,
    published_tree,
    write_params,
)

N_NIGHTS = 8
KILLED = 77
CHANGES = ("replace", "rename", "symlink", "link", "unlink", "mkdir", "rmdir", "open")
SEEDS = [seed if seed == 0 else pytest.param(seed, marks=pytest.mark.slow) for seed in range(20)]


def deliveries():
    """What is delivered every night; the fourth night's items are renumbered, then corrected."""
    for number in range(2, N_NIGHTS + 2):
        days = [ordinary_day(each) for each in range(number)]
        if number == 6:
            yield [*days[:-1], ordinary_day(5, shift=1000)]
        yield days


def in_child(work, n_changes=None, *, before=True):
    """Run in a process that dies, as by SIGKILL, at its n-th change of the disk."""
    if (child := os.fork()) == 0:
        try:
            if n_changes is not None:
                count_changes(n_changes, before=before)
            work()
            os._exit(0)
        except BaseException:  # noqa: BLE001
            traceback.print_exc()
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def count_changes(n_changes, *, before):
    left = [n_changes]

    def counted(original):
        def change(*args, **more):
            left[0] -= 1
            if left[0] == 0 and before:
                os._exit(KILLED)
            result = original(*args, **more)
            if left[0] == 0:
                os._exit(KILLED)
            return result

        return change

    for name in CHANGES:
        setattr(os, name, counted(getattr(os, name)))


def nights_of(root, kill=None):
    """Run all nights, then a rollback; `kill` says at which change to die, None: not."""
    n_killed = 0
    write_params(root)
    steps = [("deliver", days) for days in deliveries()] + [("rollback", None)]
    for kind, days in steps:
        night = pretended_night(root)
        if kind == "deliver":
            night.pipeline.deliver(days)
        work = night.run if kind == "deliver" else lambda: night.rollback("bad")  # noqa: B023
        while True:
            n_changes = kill() if kill else None
            status = in_child(work, n_changes, before=random.random() < 0.5)
            n_killed += status == KILLED
            assert status in (0, KILLED)
            if status == 0 or (kind == "rollback" and is_rolled_back(night)):
                break
    return n_killed


def is_rolled_back(night):
    """Whether a killed rollback was finished: one more would take it back."""
    action = night.history.read().action
    return action.kind == "rolled back" and night.history.unfinished() is None


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    root = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DVC_ROOT", str(root))
        nights_of(root)
    return published_tree(root)


@pytest.mark.long
def test_the_whole_run_has_every_kind_of_decision(expected):
    history = expected["nights/history.jsonl"]
    for kind in ("published", "refused", "rolled back"):
        assert f'"kind": "{kind}"' in history


@pytest.mark.long
@pytest.mark.parametrize("seed", SEEDS)
def test_killed_nights_end_as_whole_ones(seed, expected, tmp_path, monkeypatch):
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    dice = random.Random(seed)
    random.seed(seed)
    n_killed = nights_of(tmp_path, lambda: int(1 + dice.expovariate(1 / 150)))
    assert n_killed >= 3
    assert published_tree(tmp_path) == expected
