"""A profile changes no result, adds up, traces the steps asked for, and is never silently empty."""

import gzip
import json
import logging
import time
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from dayahead.core.errors import ConfigError
from dayahead.core.phases import Stopwatch, phase, read_phases, steps
from dayahead.train import profiling
from dayahead.train.checks import select_windows
from dayahead.train.compared_baselines import train_baselines
from dayahead.train.profiling import NSYS, StepTracer
from dayahead.train.stage import train
from dayahead.windows.folder import WindowFolder
from support.memory_models import MEMORY_WITH_GPT2
from support.outputs import without_times
from support.tiny_settings import merge_sections, tiny_params, tiny_study
from support.window_folders import bytes_in, day, markov_days, write_window_folder

DAYS = markov_days(n_days=4, sessions_per_day=40, n_items=20)
STUDIES = {
    "gpt2": {},
    "memory": MEMORY_WITH_GPT2,
    "popularity": {"model": {"architecture": "popularity"}},
}


def profile_of(number, first_step=1, n_steps=2):
    return {"profile": {"window": day(number), "first_step": first_step, "steps": n_steps}}


@pytest.fixture(scope="module")
def windows(tmp_path_factory):
    return write_window_folder(tmp_path_factory.mktemp("windows"), DAYS)


def run(windows, out, sections, profile=None, **more):
    train(tiny_study(windows, out, merge_sections(sections, **(profile or {})), **more))
    return results_in(out)


def results_in(out):
    """All files but times and the profile."""
    files = without_times(bytes_in(out))
    return {name: files[name] for name in files if not name.startswith("results/profile/")}


def table(out):
    return {row.phase: row for row in read_phases(out / "results" / "profile" / "phases.csv")}


def events_of(out, loop):
    path = out / "results" / "profile" / f"trace-{loop}-rank0.json.gz"
    return json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]


@pytest.fixture(
    scope="module",
    params=["gpt2", *(pytest.param(n, marks=pytest.mark.slow) for n in ("memory", "popularity"))],
)
def both(request, windows, tmp_path_factory):
    """Output folders of a study without and with a profile of the second window."""
    folder = tmp_path_factory.mktemp(request.param)
    sections = STUDIES[request.param]
    plain = run(windows, folder / "plain", sections, cache=folder / "cache-1")
    start = time.perf_counter()
    profiled = run(windows, folder / "profiled", sections, profile_of(1), cache=folder / "cache-2")
    seconds = time.perf_counter() - start
    return SimpleNamespace(
        name=request.param, plain=plain, profiled=profiled, seconds=seconds, folder=folder
    )


@pytest.mark.long
def test_results_are_the_same_with_a_profile(both):
    assert both.profiled == both.plain


@pytest.mark.long
def test_a_cached_fit_is_made_again_and_is_the_same(both, windows, caplog):
    sections = STUDIES[both.name]
    with caplog.at_level(logging.INFO):
        again = run(
            windows, both.folder / "again", sections, profile_of(2), cache=both.folder / "cache-1"
        )
    assert again == both.plain
    rows = table(both.folder / "again")
    assert (rows["fit"].calls, rows["evaluate"].calls) == (1, 1)
    assert f"profile of the fit of {day(2)}" in caplog.text


def test_own_times_add_up_and_most_time_has_a_name(both):
    rows = table(both.folder / "profiled")
    total = rows["total"]
    assert sum(row.own_seconds for row in rows.values()) == pytest.approx(total.seconds, abs=1e-4)
    assert total.seconds / 2 < rows["fit"].seconds + rows["evaluate"].seconds <= total.seconds
    assert total.seconds < both.seconds


def test_every_kind_of_work_has_a_phase(both):
    kinds = {name.rpartition("/")[2] for name in table(both.folder / "profiled")}
    network = {"body", "loss", "backward", "optimizer"}
    expected = {
        "gpt2": network | {"scores"},
        "memory": network | {"memories", "head", "network", "count"},
        "popularity": set(),
    }
    assert "profiler" not in kinds
    assert kinds >= {"data", "rank", "fit", "evaluate"} | expected[both.name]


def loops_of(out):
    return {
        "-".join(name.split("/")[:-1]): row.calls
        for name, row in table(out).items()
        if name.rpartition("/")[2] == "step"
    }


def test_traces_hold_the_steps_asked_for_and_ranges_nest(both):
    out = both.folder / "profiled"
    loops = loops_of(out)
    assert set(loops) >= {"evaluate", "fit-network" if both.name == "memory" else "fit"}
    assert loops["evaluate"] > 1
    for loop, n_steps in loops.items():
        if n_steps == 1:  # before the first one asked for
            continue
        events = events_of(out, loop)
        spans = [event for event in events if event.get("cat") == "user_annotation"]
        whole = [event for event in spans if event["name"] == "step"]
        assert len(whole) == min(2, n_steps - 1)
        for event in spans:
            if event["name"] not in {"step", "data"}:
                assert any(
                    step["ts"] <= event["ts"]
                    and event["ts"] + event["dur"] <= step["ts"] + step["dur"]
                    for step in whole
                )
        counters = [event["args"]["MB"] for event in events if event["ph"] == "C"]
        assert max(counters) > 0
        assert any(event.get("args", {}).get("Input Dims") for event in events)
        assert (out / "results" / "profile" / f"operators-{loop}.csv").read_text().count("\n") > 2


def test_without_a_profile_nothing_is_traced(windows, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise AssertionError("the profiler was started")

    for name in ("profile", "record_function"):
        monkeypatch.setattr(profiling, name, fail)
    run(windows, tmp_path / "out", {})
    files = sorted(path.name for path in (tmp_path / "out" / "results" / "profile").iterdir())
    assert files == ["README.txt"]
    with pytest.raises(AssertionError):
        run(windows, tmp_path / "again", profile_of(1))


@pytest.mark.slow
def test_what_an_earlier_profile_left_is_removed(windows, tmp_path):
    run(windows, tmp_path / "out", profile_of(1))
    run(windows, tmp_path / "out", {})
    files = sorted(path.name for path in (tmp_path / "out" / "results" / "profile").iterdir())
    assert files == ["README.txt"]


def test_the_last_fit_has_no_evaluation(windows, tmp_path):
    run(windows, tmp_path / "out", profile_of(3))
    rows = table(tmp_path / "out")
    assert "fit/step" in rows
    assert "evaluate" not in rows


def test_baselines_beside_the_run_are_not_profiled(windows, tmp_path, monkeypatch):
    started = []
    monkeypatch.setattr(StepTracer, "enter", lambda *_: started.append("enter"))
    train_baselines(tiny_study(windows, tmp_path, profile_of(1)))
    assert started == []


@pytest.mark.slow
def test_a_loop_with_too_few_steps_is_named(windows, tmp_path, caplog):
    sections = merge_sections(profile_of(1, 3, 2), evaluation={"batch_size": 16})
    with caplog.at_level(logging.INFO):
        run(windows, tmp_path / "out", sections)
    lines = [line for line in caplog.text.splitlines() if line.startswith(("evaluate: ", "fit: "))]
    assert "evaluate: no trace, profile.first_step is 3 of 3 steps" in lines
    assert lines[0].startswith("fit: steps 3 to 4 of 5 in ")
    assert not (tmp_path / "out" / "results" / "profile" / "trace-evaluate-rank0.json.gz").exists()


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        (profile_of(9), r"profile\.window: 2026-01-10 is not among the 4 windows .*01-01 to"),
        (
            merge_sections(profile_of(3), training={"fit_last": False}),
            r"profile\.window: 2026-01-04 is not among the 3 windows",
        ),
        (
            profile_of(1, 4, 2),
            r"first_step: 4 and the 2 steps from it on .* fit of 2026-01-02, which has 5 steps",
        ),
        (
            merge_sections(profile_of(1, 4, 2), training={"steps_per_window": 5}),
            "which has 5 steps",
        ),
        (
            merge_sections(profile_of(1, 9, 2), training={"epochs": 2}),
            "which has 10 steps",
        ),
    ],
)
def test_what_cannot_be_profiled_is_an_error_at_the_start(windows, sections, message):
    with pytest.raises(ConfigError, match=message):
        select_windows(WindowFolder(windows), tiny_params(sections))


def test_under_nsys_ranges_are_marked_and_torch_traces_nothing(monkeypatch, tmp_path):
    said = []

    def marked(name):
        said.append(name)
        return nullcontext()

    monkeypatch.setenv(NSYS, "1")
    monkeypatch.setattr(torch.cuda.nvtx, "range", marked)
    monkeypatch.setattr(torch.cuda.profiler, "start", lambda: said.append("start"))
    monkeypatch.setattr(torch.cuda.profiler, "stop", lambda: said.append("stop"))
    monkeypatch.setattr(profiling, "profile", None)
    config = tiny_params(profile_of(1, 1, 2)).profile
    watch = Stopwatch(StepTracer(config, torch.device("cuda"), tmp_path))
    with watch.running(), phase("fit"):
        for _ in steps(range(4)):
            with phase("loss"):
                pass
    assert said == ["start", "step", "loss", "data", "step", "loss", "stop"]
    assert list(tmp_path.iterdir()) == []


def test_on_a_gpu_a_phase_ends_when_its_work_does(monkeypatch, tmp_path):
    waits = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: waits.append("wait"))
    config = tiny_params(profile_of(1, 5, 1)).profile
    watch = Stopwatch(StepTracer(config, torch.device("cuda"), tmp_path))
    with watch.running(), phase("fit"):
        pass
    assert waits == ["wait"] * 4  # two phases, the whole among them
