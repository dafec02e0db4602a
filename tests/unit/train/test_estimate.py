"""What a study will take: work by hand, costs that grow with the catalogue, and a real measure."""

import json
import logging
import re
import shutil
import signal
import time
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import pytest
from numba.core.event import trigger_event
from typer.testing import CliRunner

from dayahead.__main__ import app
from dayahead.core.errors import ConfigError, WindowError, terminable
from dayahead.core.phases import PhaseRow
from dayahead.train import calibration, estimate
from dayahead.train.calibration import Calibration, Measured, StepTime, calibrate, seconds_by_kind
from dayahead.train.estimate import Estimate, WindowCost, announce, duration, grown
from dayahead.train.work import Work, work_of
from dayahead.windows.folder import WindowFolder
from support.live_windows import rewrite, train_file
from support.memory_models import MEMORY_WITH_GPT2
from support.project_copy import ROOT
from support.tiny_settings import merge_sections, tiny_params, tiny_study
from support.window_folders import day, markov_days, write_window_folder
from support.worker_studies import killed, sleeping

N_DAYS, N_SESSIONS = 4, 40
DAYS = markov_days(N_DAYS, N_SESSIONS, 15)
GIB = 2**30
KINDS = ("counting", "steps", "head", "examples", "evaluation", "other")


@pytest.fixture(scope="module")
def windows(tmp_path_factory):
    return write_window_folder(tmp_path_factory.mktemp("windows"), DAYS)


def works(folder, sections=None):
    params, store = tiny_params(sections), WindowFolder(folder)
    return [work_of(store, params, store.windows, index) for index in range(N_DAYS)]


def test_the_work_of_a_network_is_its_steps_and_the_sessions_of_the_next_window(windows):
    found = works(windows, {"training": {"epochs": 3, "batch_size": 16}})
    assert [each.steps for each in found] == [9] * N_DAYS
    assert [each.evaluation for each in found] == [N_SESSIONS] * 3 + [0]
    assert {each.head for each in found} == {each.examples for each in found} == {0}
    later = works(windows, {"evaluation": {"split": "test", "horizon": 2}})
    assert [each.evaluation for each in later] == [N_SESSIONS, N_SESSIONS, N_SESSIONS // 2, 0]


def test_all_sessions_of_a_window_are_counted_where_only_some_are_fitted_on(windows, tmp_path):
    copied = Path(shutil.copytree(windows, tmp_path / "windows"))
    rewrite(train_file(copied, 1), lambda table: table.slice(0, 30))
    found = works(copied, {"evaluation": {"split": "all"}})
    assert [each.evaluation for each in found] == [N_SESSIONS] * 3 + [0]


def test_the_work_of_a_first_fit_of_memory_has_a_network_of_half_of_it(windows):
    memory = {"n_examples": 50, "n_replayed": 10, "batch_size": 8, "min_steps": 1}
    memory |= {"epochs": 2, "first_epochs": 5}
    model = {"architecture": "memory", "network": "gpt2"}
    sections = {"model": model, "memory": memory, "training": {"batch_size": 20}}
    first, second, *_ = works(windows, sections)
    assert (first.steps, second.steps) == (2 + 1, 2)
    limited = works(windows, merge_sections(sections, memory={"network_steps": 1}))
    assert [each.steps for each in limited] == [2, 1, 1, 1]
    sections = merge_sections(sections, training={"batch_size": 4})
    limited = works(windows, merge_sections(sections, memory={"network_steps": 5}))
    assert [each.steps for each in limited] == [5 + 3, 5, 5, 5]
    assert (first.head, second.head) == (5 * (50 + 30 * 7), 2 * (60 + 30 * 8))
    assert first.examples == second.examples == 50
    _, second, third, _ = works(windows, merge_sections(sections, memory={"n_replayed": 60}))
    assert (second.head, third.head) == (2 * (100 + 30 * 13), 2 * (110 + 30 * 14))
    alone = works(windows, merge_sections(sections, model={"network": "none"}))
    assert [each.steps for each in alone] == [0] * N_DAYS


@pytest.mark.parametrize(
    ("protocol", "counted"), [("sliding", [40, 80, 80, 80]), ("from_scratch", [40, 80, 120, 160])]
)
def test_the_sessions_are_those_that_the_protocol_fits_on(windows, protocol, counted):
    found = works(windows, {"training": {"protocol": protocol, "history": 2}})
    assert [each.counting for each in found] == counted


@pytest.mark.parametrize(
    ("points", "wanted"),
    [
        ([(10, 1.0)], 1.0),
        ([(10, 1.0), (20, 1.5)], 2.0),  # half a second for every ten
        ([(10, 1.0), (20, 0.5)], 0.75),  # not less
        ([(10, 1.0), (20, 9.0)], 10.0),  # not more than in proportion
    ],
)
def test_a_cost_grows_along_a_line(points, wanted):
    assert grown(points, 30) == pytest.approx(wanted)
    assert grown(points, 30, is_growing=False) == pytest.approx(
        sum(cost for _, cost in points) / len(points)
    )


def test_phases_are_counted_once_by_what_they_grow_with():
    paths = ("fit", "fit/count", "fit/early network/step", "fit/memory", "fit/memory/memories")
    paths += ("fit/memory/head/step", "fit/memory/network/body", "fit/network", "evaluate/step")
    paths += ("state",)
    own = [PhaseRow(path, 0, 2.0**n, 0, 1, 0) for n, path in enumerate(paths)]
    rows = [PhaseRow("total", sum(row.own_seconds for row in own), 0, 0, 1, 0), *own]
    found = seconds_by_kind(rows, tiny_params(MEMORY_WITH_GPT2))
    assert found == {"other": 1 + 512, "counting": 2, "steps": 4 + 128, "examples": 8 + 16 + 64,
                     "head": 32, "evaluation": 256}  # fmt: skip
    alone = seconds_by_kind([own[0], PhaseRow("fit/step", 0, 3.0, 0, 1, 0)], tiny_params())
    assert alone["steps"] == 3


def measured(n_items, seconds, **units):
    """A measured fit: seconds of every kind that had a unit of work or more."""
    work = Work(**(dict.fromkeys(("window", *KINDS), 0) | {"n_items": n_items} | units))
    return Measured(work, {kind: float(seconds * bool(getattr(work, kind))) for kind in KINDS})


def calibrated(**changes):
    own = [measured(15, 2.0, counting=10, evaluation=4, other=1)]
    steps = [StepTime("softmax", 15, 0.5), StepTime("sampled_softmax", 15, 0.125)]
    found = Calibration(own, {}, steps, GIB, 2 * GIB, 0, 7.0)
    return replace(found, **changes)


@pytest.fixture
def _without_baselines(monkeypatch):
    monkeypatch.setattr(estimate, "baselines_beside", lambda _: ())


@pytest.mark.usefixtures("_without_baselines")
def test_a_study_is_the_sum_of_its_work_times_what_a_unit_took(windows, tmp_path):
    study = tiny_study(windows, tmp_path, {"training": {"epochs": 2, "batch_size": 10}})
    found = estimate.estimate(study, calibrated())
    first, *_, last = found.windows
    assert first.seconds == {"counting": 8.0, "evaluation": 20.0, "other": 2.0, "steps": 4.0,
                             "baselines": 0, "head": 0, "examples": 0}  # fmt: skip
    assert last.seconds["evaluation"] == 0
    assert found.seconds == 7 + 4 * (8 + 2 + 4) + 3 * 20
    assert found.gib == pytest.approx(1 + 1 * 40 / 10)
    assert [*found.with_setting] == [
        "evaluation.split=test",
        "loss.name=sampled_softmax",
        "training.epochs=1",
    ]
    assert found.with_setting["training.epochs=1"] == found.seconds - 4 * 2
    assert found.with_setting["loss.name=sampled_softmax"] == found.seconds - 4 * 3
    assert found.with_setting["evaluation.split=test"] == found.seconds - 3 * 10
    assert sum(found.shares.values()) == pytest.approx(1)
    assert json.loads(json.dumps(found.as_json()))["seconds"] == found.seconds


def test_the_line_says_how_long_how_much_what_of_and_what_helps():
    kinds = dict.fromkeys(estimate.NAMES, 0.0)
    cost = WindowCost("2026-01-01", kinds | {"steps": 6000.0, "head": 2000.0}, 5.94)
    found = Estimate([cost], {"training.epochs=1": 3500.0})
    assert found.line() == (
        "about 2 h 13 min for 1 windows and 5.9 GiB (within 30%), 75% of the time steps of the "
        "network; training.epochs=1 would make it 58 min"
    )
    assert duration(40) == "40 s"


def test_an_unknown_feature_is_named_before_anything_is_measured(tmp_path):
    windows = write_window_folder(tmp_path / "windows", DAYS, features=True)
    unknown = {"model": {"features": ["nosuch"]}}
    with pytest.raises(ConfigError, match=r"features: nosuch: .* some of category, price$"):
        announce(tiny_study(windows, tmp_path, unknown))


@pytest.mark.usefixtures("_without_baselines")
def test_a_long_study_is_announced_without_what_is_cached(windows, tmp_path, monkeypatch, caplog):
    caplog.set_level(logging.INFO)
    slow = calibrated(own=[measured(15, 900.0, counting=10, evaluation=40, other=1)])
    monkeypatch.setattr(estimate, "calibrate", lambda _: slow)
    study = tiny_study(windows, tmp_path)
    announce(study)
    assert not caplog.messages  # as few sessions are not measured
    monkeypatch.setattr(estimate, "LEAST_PASSES", 1)
    monkeypatch.setattr(estimate, "LEAST_TIMES", 1_000)
    announce(study)
    [line] = caplog.messages
    assert line == "train: few windows, so they are not measured; `dayahead estimate` does"
    caplog.clear()
    monkeypatch.setattr(estimate, "LEAST_TIMES", 1)
    announce(study)
    [line] = caplog.messages
    assert line.startswith("train: about ")
    assert "for 3 windows" in line


@pytest.mark.long
def test_a_measuring_process_that_is_killed_stops_no_study(windows, tmp_path, monkeypatch, caplog):
    study = tiny_study(windows, tmp_path)
    monkeypatch.setattr(calibration, "_calibrate", killed)
    monkeypatch.setattr(estimate, "LEAST_PASSES", 1)
    monkeypatch.setattr(estimate, "LEAST_TIMES", 1)
    announce(study)
    [line] = caplog.messages
    assert line.startswith("train: no estimate: the process that measures the first windows has")


def test_a_stopped_measurement_ends_at_once(windows, tmp_path, monkeypatch):
    monkeypatch.setattr(calibration, "_calibrate", sleeping)
    monkeypatch.setattr(Future, "result", lambda _: signal.raise_signal(signal.SIGTERM))
    start = time.monotonic()
    with terminable(), pytest.raises(SystemExit):
        calibrate(tiny_study(windows, tmp_path))
    assert time.monotonic() - start < 100


@pytest.mark.long
@pytest.mark.parametrize("sections", [{"model": {"architecture": "popularity"}}, MEMORY_WITH_GPT2])
def test_a_real_measure_has_every_kind_of_work_that_the_study_has(windows, tmp_path, sections):
    study = tiny_study(windows, tmp_path, sections)
    found = calibrate(study)
    assert len(found.own) == N_DAYS - 1
    for each in found.own:
        wanted = {kind for kind in KINDS if getattr(each.work, kind)}
        assert {kind for kind, seconds in each.seconds.items() if seconds > 0} >= wanted
    assert bool(found.steps) == study.params.model.has_network
    assert found.peak_bytes >= found.base_bytes > 0
    total = estimate.estimate(study, found)
    assert 0 < total.seconds < 600
    assert [each.window for each in total.windows] == [day(number) for number in range(N_DAYS)]
    assert not (tmp_path / "results").exists()


@pytest.mark.long
def test_what_compiles_while_it_is_measured_is_no_part_of_the_start(windows, tmp_path, monkeypatch):
    seconds, n_studies = 0.4, 3

    def fits(*_):
        with trigger_event("numba:compile"):
            time.sleep(seconds)
        return iter(())

    monkeypatch.setattr(calibration, "_fits", fits)
    study = tiny_study(windows, tmp_path, {"model": {"architecture": "popularity"}})
    imports = time.process_time()
    start = calibration._calibrate(study).start_seconds
    assert imports < start < imports + n_studies * seconds


def test_without_windows_the_verb_says_what_to_run(tmp_path, monkeypatch):
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    shutil.copy(ROOT / "params.yaml", tmp_path)
    error = CliRunner().invoke(app, ["estimate"]).exception
    assert isinstance(error, WindowError)
    assert re.search(r"windows\.json: not readable .*run `dvc repro preprocess`", str(error))


def test_the_verb_prints_what_it_finds(windows, tmp_path, monkeypatch):
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    shutil.copy(ROOT / "params.yaml", tmp_path)
    shutil.copytree(windows, tmp_path / "data" / "windows")
    monkeypatch.setattr(calibration, "calibrate", lambda _: calibrated())
    monkeypatch.setattr(estimate, "baselines_beside", lambda _: ())
    text = CliRunner().invoke(app, ["estimate"]).stdout
    assert text.startswith("about ")
    assert "share of the time" in text
    found = json.loads(CliRunner().invoke(app, ["estimate", "--json"]).stdout)
    assert found["windows"][0]["window"] == day(0)
