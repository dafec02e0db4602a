"""Interrupted, repeated and extended runs reuse cached windows and end with the same files."""

import errno
import platform
import time
from importlib.metadata import version
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from dayahead.config.baselines import BASELINES, MEMORY
from dayahead.distributed.launch import run_processes
from dayahead.model.tensor_files import write_tensors
from dayahead.train import cache_keys, cached_windows
from dayahead.train.cached_windows import STATE
from dayahead.train.results import EvaluatedWindow
from dayahead.train.run import Run
from dayahead.train.stage import train
from support.cached_runs import DAYS, KEEP_ALL, run
from support.memory_models import MEMORY_WITH_GPT2
from support.outputs import without_times
from support.tiny_settings import (
    BACKBONES,
    FAST_BACKBONES,
    GRU4REC,
    compute_config,
    merge_sections,
    tiny_study,
)
from support.window_folders import bytes_in, day, write_window_folder
from support.worker_studies import fit_and_die_once

DROPOUT = {"model": {"dropout": 0.2, "input_dropout": 0.1}}


@pytest.fixture
def windows(five_days):
    return five_days


def run_until_killed(monkeypatch, method, call, *arguments):
    """Run until the n-th call of a method of Run, then stop like SIGKILL: written files stay."""
    called = getattr(Run, method)
    calls = []

    def killed(self, *about):
        calls.append(method)
        if len(calls) == call:
            raise KeyboardInterrupt
        return called(self, *about)

    with monkeypatch.context() as patch:
        patch.setattr(Run, method, killed)
        with pytest.raises(KeyboardInterrupt):
            run(*arguments)


SETTINGS = {
    "gpt2 with dropout": DROPOUT,
    "fresh optimizer": {"training": {"carry_optimizer": False}},
    "transitions": {"model": {"architecture": "transitions", "decay": 0.5}},
    "cooccurrence": {"model": {"architecture": "cooccurrence", "decay": 0.5}},
    "vstan": {"model": {"architecture": "vstan"}},
    "slist": {"model": {"architecture": "slist"}},
    "memory": {"model": {"architecture": "memory"}},
    "memory with gpt2": merge_sections(DROPOUT, **MEMORY_WITH_GPT2),
    "end to end": merge_sections(MEMORY_WITH_GPT2, memory={"end_to_end": True}),
    "sliding": {"training": {"protocol": "sliding", "epochs": 2}},
    "from scratch": {"training": {"protocol": "from_scratch"}},
    "sampled": {"loss": {"name": "sampled_softmax", "popularity_exponent": 0.75}},
    "gru4rec": merge_sections(GRU4REC, **DROPOUT),
    "lists": {"evaluation": {"predictions": 3, "train_sessions": 5, "positions": "all"}},
}
FAST = ("gpt2 with dropout", "transitions", "memory")


def mark_slow(names):
    return [pytest.param(n, marks=() if n in FAST else pytest.mark.slow) for n in names]


every_setting = pytest.mark.parametrize("name", mark_slow(SETTINGS))


@every_setting
def test_a_killed_run_resumes_to_the_same_result(windows, tmp_path, monkeypatch, fits, name):
    """Killed twice at the third window: while fitting it, and before the evaluation of that fit."""
    sections = SETTINGS[name]
    whole = run(windows, tmp_path / "a" / "out", sections)
    arguments = windows, tmp_path / "b" / "out", sections
    fits.clear()
    run_until_killed(monkeypatch, "_n_sessions", 3, *arguments)
    run_until_killed(monkeypatch, "evaluate", 1, *arguments)
    assert run(*arguments) == whole
    assert fits == [day(0), day(1), day(2), day(2), day(3), day(4)]  # day 2 was interrupted


@every_setting
def test_an_evaluation_leaves_alone_the_state_that_is_being_written(
    windows, tmp_path, monkeypatch, name
):
    evaluate, n_same = Run.evaluate, []

    def checked(self, *about):
        before = {name: tensor.clone() for name, tensor in self.state().items()}
        evaluated = evaluate(self, *about)
        assert_close(self.state(), before, rtol=0, atol=0)
        n_same.append(len(before))
        return evaluated

    monkeypatch.setattr(Run, "evaluate", checked)
    run(windows, tmp_path / "out", SETTINGS[name])
    assert len(n_same) == len(DAYS) - 1
    assert all(n_same)


@pytest.mark.long
@pytest.mark.parametrize("name", mark_slow(["gpt2 with dropout", "memory with gpt2"]))
def test_a_fit_is_cached_as_it_was_however_long_that_takes(windows, tmp_path, monkeypatch, name):
    def written(folder):
        run(windows, tmp_path / folder / "out", merge_sections(SETTINGS[name], **KEEP_ALL))
        files = bytes_in(tmp_path / folder / "cache" / "fits")
        return {path: content for path, content in files.items() if path.endswith(STATE)}

    at_once = written("a")
    monkeypatch.setattr(cached_windows, "write_tensors", slowly(write_tensors))
    assert written("b") == at_once
    assert len(at_once) == len(DAYS)


def slowly(function):
    def delayed(*arguments):
        time.sleep(0.05)
        function(*arguments)

    return delayed


def test_an_evaluation_is_cached_after_its_fit(windows, tmp_path, monkeypatch):
    order, write_evaluation = [], EvaluatedWindow.write

    def write_fit(*arguments):
        slowly(write_tensors)(*arguments)
        order.append("fit")

    def write(self, folder):
        order.append("evaluation")
        write_evaluation(self, folder)

    monkeypatch.setattr(cached_windows, "write_tensors", write_fit)
    monkeypatch.setattr(EvaluatedWindow, "write", write)
    run(windows, tmp_path / "out")
    assert order == [*(["fit", "evaluation"] * (len(DAYS) - 1)), "fit"]


def test_a_fit_that_cannot_be_written_ends_the_run(windows, tmp_path, monkeypatch, fits):
    def full(path, tensors):
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(cached_windows, "write_tensors", slowly(full))
    with pytest.raises(OSError, match=STATE):
        run(windows, tmp_path / "out")
    assert fits == [day(0)]


def test_a_run_that_fails_while_a_fit_is_written_leaves_it_whole(windows, tmp_path, monkeypatch):
    monkeypatch.setattr(cached_windows, "write_tensors", slowly(write_tensors))
    run_until_killed(monkeypatch, "evaluate", 1, windows, tmp_path / "out")
    assert [Path(path).name for path in bytes_in(tmp_path / "cache" / "fits")].count(STATE) == 1


def longer_runs():
    """All backbones and baselines; in the fast tests one of each."""
    for name, task in dict.fromkeys([*FAST_BACKBONES, *BACKBONES]):
        marks = () if (name, task) == ("gpt2", "clm") else pytest.mark.slow
        sections = {"model": {"architecture": name, "dropout": 0.1}, "task": {"name": task}}
        yield pytest.param(sections, marks=marks, id=f"{name}-{task}")
    for name in (*BASELINES, MEMORY):
        marks = pytest.mark.long if name in FAST else pytest.mark.slow
        yield pytest.param({"model": {"architecture": name, "decay": 0.5}}, marks=marks, id=name)


@pytest.mark.parametrize("sections", [*longer_runs()])
def test_a_longer_run_extends_a_shorter_one(windows, tmp_path, sections):
    """It starts from the shorter one's state, and repeats its ranks."""
    whole = run(windows, tmp_path / "a" / "out", sections, last=day(3))
    shorter = run(windows, tmp_path / "b" / "out", sections, last=day(2))
    for window in (day(1), day(2)):
        name = f"results/ranks/{window}.parquet"
        assert shorter[name] == whole[name]
    assert f"results/ranks/{day(3)}.parquet" not in shorter
    assert run(windows, tmp_path / "b" / "out", sections, last=day(3)) == whole


@pytest.mark.slow
def test_a_run_restarts_after_one_of_its_processes_is_killed(windows, tmp_path, caplog):
    def study(name):
        sections = DROPOUT | {"compute": {"processes": 2}}
        return tiny_study(windows, tmp_path / name / "out", sections, cache=tmp_path / name)

    train(study("whole"))
    compute = compute_config(processes=2)
    run_processes(fit_and_die_once, compute, study("killed"), max_restarts=1)
    assert "started again" in caplog.text
    files = without_times(bytes_in(tmp_path / "killed" / "out"))
    files.pop("died")
    assert files == without_times(bytes_in(tmp_path / "whole" / "out"))


@pytest.mark.slow
def test_one_more_day_needs_one_more_fit(tmp_path, fits):
    """The catalogue grows with the log, and the keys of earlier windows stay the same."""
    shorter = write_window_folder(tmp_path / "shorter", DAYS[:4])
    longer = write_window_folder(tmp_path / "longer", DAYS)
    run(shorter, tmp_path / "a" / "out", DROPOUT)
    fits.clear()
    extended = run(longer, tmp_path / "a" / "out", DROPOUT)
    assert fits == [day(4)]
    assert extended == run(longer, tmp_path / "b" / "out", DROPOUT)


def test_the_same_run_again_fits_and_evaluates_nothing(windows, finished, monkeypatch, fits):
    files, out = finished
    monkeypatch.setattr(Run, "evaluate", None)
    assert run(windows, out) == files
    assert fits == []


def test_an_earlier_last_window_starts_from_a_fit_that_was_kept(windows, tmp_path, fits):
    keep_two = {"machine": {"keep_fits": 2}}
    run(windows, tmp_path / "a" / "out", keep_two)
    fits.clear()
    earlier = run(windows, tmp_path / "a" / "out", keep_two, last=day(1))
    assert fits == []
    assert earlier == run(windows, tmp_path / "b" / "out", last=day(1))


def test_another_cutoff_needs_no_fit(windows, finished, tmp_path, fits):
    other = {"evaluation": {"cutoffs": [3]}}
    again = run(windows, finished[1], other)
    assert fits == []
    assert again == run(windows, tmp_path / "new" / "out", other)


@pytest.mark.parametrize(("kind", "n_fits"), [("fits", 3), ("evaluations", 0)])
def test_damaged_entries_are_reported_and_built_again(
    windows, finished, caplog, fits, kind, n_fits
):
    """One with changed bytes, one cut and one lost; of fits the three that are tried first."""
    files, out = finished
    folder = out.with_name("cache") / kind
    entries = [path for path in folder.iterdir() if path.name != "locks"]
    newest = sorted(entries, key=lambda path: path.stat().st_mtime)[-3:]
    for entry, damage in zip(newest, ("changed", "cut", "lost"), strict=True):
        [path] = [*entry.rglob("*.safetensors"), *entry.glob("ranks/*.parquet")]
        content = bytearray(path.read_bytes())
        path.unlink()
        content[-3] ^= 1
        if damage != "lost":
            path.write_bytes(content if damage == "changed" else content[:-7])
    assert run(windows, out, KEEP_ALL) == files
    assert caplog.text.count("damaged (") == 3
    assert {path.name for path in folder.glob("*.damaged")} == {f"{e.name}.damaged" for e in newest}
    assert len(fits) == n_fits


def other_architecture(monkeypatch):
    here = platform.machine()
    monkeypatch.setattr("dayahead.train.cached_windows.platform.machine", lambda: "sparc")
    return f"device {here}, here sparc"


def other_cpu(monkeypatch):
    here = torch.cpu.get_capabilities()
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: here | {"cpu_name": "Another"})
    return f"cpu {here['cpu_name']}, here Another"


def other_build(monkeypatch):
    here = version("torch")
    other = f"{here.partition('+')[0]}+cu999"
    for module in (cached_windows, cache_keys):
        monkeypatch.setattr(
            module, "package_version", lambda name: other if name == "torch" else version(name)
        )
    return f"torch {here}, here {other}"


def other_instructions(monkeypatch):
    here = torch.cpu.get_capabilities()
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: here | {"amx_next": True})
    return "amx_next missing, here True"


def other_library_mode(monkeypatch):
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    return "ONEDNN_MAX_CPU_ISA missing, here AVX2"


@pytest.mark.parametrize(
    "change",
    [
        other_cpu,
        other_build,
        *(
            pytest.param(change, marks=pytest.mark.slow)
            for change in (other_architecture, other_instructions, other_library_mode)
        ),
    ],
)
def test_entries_of_another_machine_are_reported_or_with_strict_ignored(
    windows, finished, caplog, monkeypatch, fits, change
):
    files, out = finished
    difference = change(monkeypatch)
    assert run(windows, out) == files
    assert caplog.text.count(difference) == 1
    assert fits == []
    for n_fits in (len(DAYS), 0):
        assert run(windows, out, {"machine": {"strict": True}}) == files
        assert len(fits) == n_fits
        fits.clear()
