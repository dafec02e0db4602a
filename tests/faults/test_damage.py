"""Files that are cut off, or hold a flipped bit, a NaN or half of what they should."""

import random
from collections import defaultdict

import pytest

from faults.harness import assert_error, damage, replace, restored
from support.live_windows import replaced, rewrite
from support.window_folders import bytes_in

pytestmark = pytest.mark.faults


def test_params_yaml_is_cut_in_half(project, reference):
    params = project.folder / "params.yaml"
    with restored(params) as whole:
        params.write_bytes(whole[: len(whole) // 2])
        assert_error(project.stage("train"), r"params\.yaml")
    project.assert_completes(reference)


@pytest.mark.parametrize("seed", [1, 2, 4, 5, 7, 8])
def test_a_bit_of_params_yaml_is_flipped(project, reference, seed):
    """It is an error, or a run with other settings, which uses nothing cached for these."""
    params = project.folder / "params.yaml"
    with restored(params):
        damage(params, seed)
        outcome = project.stage("train")
        if outcome[0] != 0:
            assert_error(outcome, r"params\.yaml")
    project.assert_completes(reference)


@pytest.mark.parametrize("seed", range(4))
def test_the_event_log_is_damaged(project, reference, seed):
    """DVC detects it by its hash and restores it; the stage alone detects it too and says so."""
    raw = project.folder / "data" / "raw"
    whole = bytes_in(raw)
    damage(random.Random(seed).choice(sorted(raw.glob("events-*.parquet"))), seed)
    windows = project.cache / "windows"
    aside = windows.rename(windows.with_name("windows-aside"))
    assert_error(project.stage("preprocess"), r"data/raw/.*dvc repro (-f )?download")
    if windows.exists():
        project.empty_cache("windows")
    aside.rename(windows)
    project.run_successfully("dvc repro preprocess")
    assert bytes_in(raw) == whole
    project.assert_completes(reference)


@pytest.mark.parametrize("seed", range(3))
def test_a_window_file_is_damaged(project, reference, seed):
    """DVC detects it by its hash; the cache restores the windows."""
    damage(random.Random(seed).choice(sorted(project.windows.rglob("*.parquet"))), seed)
    project.run_successfully("dvc repro preprocess")
    project.assert_completes(reference)


def test_a_window_file_that_is_cut_off_is_named(project, reference):
    path = project.windows / "session_start_hour=2017-10-02T05-train.parquet"
    damage(path, 0)
    assert_error(project.stage("train"), f"{path.name}: not readable")
    project.run_successfully("dvc repro preprocess")
    project.assert_completes(reference)


@pytest.mark.parametrize("is_cut", [False, True])
def test_cached_fits_are_damaged(project, reference, is_cut):
    project.kill_training()
    states = [entry.path / "state.safetensors" for entry in project.cached("fits").entries()]
    for path in states:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        replace(path, content[:-100] if is_cut else content)
    output = project.run_successfully("python stages/train.py")
    assert output.count(": damaged (") == len(states) > 0
    project.assert_completes(reference)


@pytest.mark.parametrize("seed", range(6))
def test_a_cached_file_of_every_kind_is_damaged(project, reference, seed):
    project.kill_training(n_evaluated=1)
    kinds = defaultdict(list)
    for path in sorted(project.cache.rglob("*")):
        if path.is_file() and path.stat().st_size and ".damaged" not in str(path):
            kinds[path.relative_to(project.cache).parts[0]].append(path)
    stream = random.Random(seed)
    for files in kinds.values():
        damage(stream.choice(files), stream.randrange(1000))
    assert {"events", "windows", "fits", "evaluations", "outbox"} <= set(kinds)
    output = project.run_successfully("dvc repro --force")
    assert "Traceback" not in output
    assert project.outputs() == reference.outputs
    _, output = project.run("python -m dayahead track --sync")
    assert "Traceback" not in output, output


def set_age(path, row, number):
    """Write a number into the ages of one session of a window file."""

    def change(table):
        ages = table["item_age"].to_pylist()
        ages[row % len(ages)][0] = number
        return replaced(table, "item_age", ages)

    rewrite(path, change)  # a file of its own: hard links stay whole


def times_of_writing(cache):
    paths = (entry.path / "contents.json" for entry in cache.entries())
    return {path: path.stat().st_mtime_ns for path in paths}


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_window_file_holds_a_number_that_is_not_finite(project, number):
    """The window is named; evaluations before it stay cached and are used again."""
    stream = random.Random(3)
    with project.changed("model", features=["item_age"]):
        project.run_successfully("python stages/train.py")
        expected = project.outputs()
        project.clear()
        hour = stream.randrange(2, 9)
        path = project.windows / f"session_start_hour=2017-10-02T{hour:02d}-train.parquet"
        with restored(path):
            set_age(path, stream.randrange(10**6), number)
            assert_error(project.stage("train"), f"{path.name}: .*item_age")
        finished = times_of_writing(project.cached("evaluations"))
        assert len(finished) == hour - 1  # the window is evaluated before it is fitted on
        project.run_successfully("python stages/train.py")
        assert finished.items() <= times_of_writing(project.cached("evaluations")).items()
        assert project.outputs() == expected
