"""What a run finished comes out of the store: killed or longer, it ends as if run at once."""

import shutil

import pyarrow.parquet as pq
import pytest

from dayahead.core.files import read_json, write_parquet
from dayahead.distributed.launch import run_processes
from dayahead.train.run import Run
from dayahead.train.stage import train
from dayahead.windows.folder import window_path
from support.tiny_settings import (
    compute_config,
    evaluated_windows,
    every_backbone,
    merge_sections,
    ranks_of,
    tiny_study,
)
from support.window_folders import bytes_in, day, markov_days, write_window_folder
from support.worker_studies import fit_and_die_once, run_and_record

DAYS = markov_days(n_days=5, sessions_per_day=24, n_items=25)
DROPOUT = {"model": {"dropout": 0.2, "input_dropout": 0.1}}


@pytest.fixture(scope="module")
def windows(tmp_path_factory):
    return write_window_folder(tmp_path_factory.mktemp("windows"), DAYS)


@pytest.fixture
def fits(monkeypatch):
    """Names of the windows fitted."""
    names = []
    fit_of = Run.fit

    def fit(self, windows):
        names.append(windows[-1].name)
        return fit_of(self, windows)

    monkeypatch.setattr(Run, "fit", fit)
    return names


def run(windows, out, sections=None, **more):
    """Train with a store that outlives `out`, which begins empty as DVC has it."""
    shutil.rmtree(out, ignore_errors=True)
    study = tiny_study(windows, out, sections, cache=out.with_name("store"), **more)
    train(study)
    return equal_files(out)


def equal_files(out):
    """All that a run leaves but clock times."""
    return {name: held for name, held in bytes_in(out).items() if "timing" not in name}


def killed(monkeypatch, when, *about):
    """Begin a run and end it at the third window as SIGKILL would: what is written stays."""
    with monkeypatch.context() as patch:
        die_at_third(patch, when)
        with pytest.raises(KeyboardInterrupt):
            run(*about)


def die_at_third(monkeypatch, when):
    place = {"before evaluating": "evaluate", "while fitting": "_n_sessions"}[when]
    called = getattr(Run, place)
    calls = []

    def dying(self, *about):
        calls.append(place)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return called(self, *about)

    monkeypatch.setattr(Run, place, dying)


ARCHITECTURES = {
    "gpt2 with dropout": DROPOUT,
    "fresh moments": {"training": {"carry_optimizer": False}},
    "transitions": {"model": {"architecture": "transitions", "decay": 0.5}},
    "sliding": {"training": {"protocol": "sliding", "epochs": 2}},
    "from scratch": {"training": {"protocol": "from_scratch"}},
    "popularity": {"model": {"architecture": "popularity"}},
    "sampled": {"loss": {"name": "sampled_softmax", "popularity_exponent": 0.75}},
    "lists": {"evaluation": {"predictions": 3, "train_sessions": 5, "positions": "all"}},
}


@pytest.mark.parametrize("when", ["before evaluating", "while fitting"])
@pytest.mark.parametrize("sections", ARCHITECTURES.values(), ids=ARCHITECTURES)
def test_killed_and_run_again_is_never_killed(windows, tmp_path, monkeypatch, sections, when):
    whole = run(windows, tmp_path / "a" / "out", sections)
    killed(monkeypatch, when, windows, tmp_path / "b" / "out", sections)
    assert run(windows, tmp_path / "b" / "out", sections) == whole


@every_backbone
def test_every_body_goes_on_from_a_state(windows, tmp_path, architecture, task):
    sections = {"model": {"architecture": architecture, "dropout": 0.1}, "task": {"name": task}}
    whole = run(windows, tmp_path / "a" / "out", sections)
    run(windows, tmp_path / "b" / "out", sections, last=day(3))
    assert run(windows, tmp_path / "b" / "out", sections) == whole


def test_two_processes_go_on_from_their_state(windows, tmp_path, fits):
    def study(name, cache, sections=DROPOUT, last=None):
        sections = merge_sections(sections, compute={"shard_items": name.endswith("shared")})
        out = tmp_path / name
        return tiny_study(windows, out, sections, cache=tmp_path / cache, last=last)

    studies = {
        "whole": study("whole", "one"),
        "begun": study("begun", "other", last=day(2)),
        "ended": study("ended", "other"),
        "whole-shared": study("whole-shared", "two"),
        "begun-shared": study("begun-shared", "more", last=day(2)),
        "ended-shared": study("ended-shared", "more"),
        "left-shared": study("left-shared", "last", None, last=day(2)),
    }
    run_processes(run_and_record, compute_config(processes=2), studies, tmp_path)
    for ending in ("", "-shared"):
        whole, ended = (equal_files(tmp_path / f"{name}{ending}") for name in ("whole", "ended"))
        assert ended == whole
        names = [f"{name}{ending}" for name in ("whole", "begun", "ended")]
        n_steps = [len(read_json(tmp_path / f"{name}-1.json")["losses"]) for name in names]
        assert n_steps == [15, 9, 6]
    train(study("alone", "last", None))
    assert fits == [day(3), day(4)]
    never = study("never", "new", None)
    train(never)
    for window in evaluated_windows(tmp_path / "alone"):
        one, other = (ranks_of(tmp_path / name, window) for name in ("alone", "never"))
        assert (one == other).all()


@pytest.mark.slow
def test_a_rank_that_is_killed_costs_nothing(windows, tmp_path, caplog):
    def study(name):
        sections = DROPOUT | {"compute": {"processes": 2}}
        return tiny_study(windows, tmp_path / name / "out", sections, cache=tmp_path / name)

    train(study("whole"))
    compute = compute_config(processes=2)
    run_processes(fit_and_die_once, compute, study("killed"), max_restarts=1)
    assert "started again" in caplog.text
    left = equal_files(tmp_path / "killed" / "out")
    left.pop("died")
    assert left == equal_files(tmp_path / "whole" / "out")


def test_a_killed_run_repeats_no_fit_but_its_last(windows, tmp_path, monkeypatch, fits):
    killed(monkeypatch, "while fitting", windows, tmp_path / "out")
    assert fits == [day(0), day(1), day(2)]
    fits.clear()
    run(windows, tmp_path / "out")
    assert fits == [day(2), day(3), day(4)]


def test_one_more_day_is_one_more_fit(tmp_path, fits):
    """The catalogue grows with the log: what yesterday knew keeps its keys."""
    shorter = write_window_folder(tmp_path / "shorter", DAYS[:4])
    longer = write_window_folder(tmp_path / "longer", DAYS)
    run(shorter, tmp_path / "a" / "out", DROPOUT)
    fits.clear()
    grown = run(longer, tmp_path / "a" / "out", DROPOUT)
    assert fits == [day(4)]
    assert grown == run(longer, tmp_path / "b" / "out", DROPOUT)


def test_the_same_again_fits_and_measures_nothing(windows, tmp_path, monkeypatch, fits):
    first = run(windows, tmp_path / "out")
    fits.clear()
    monkeypatch.setattr(Run, "evaluate", None)
    assert run(windows, tmp_path / "out") == first
    assert fits == []


def test_another_cutoff_needs_no_fit(windows, tmp_path, fits):
    run(windows, tmp_path / "a" / "out")
    fits.clear()
    other = {"evaluation": {"cutoffs": [3]}}
    again = run(windows, tmp_path / "a" / "out", other)
    assert fits == []
    assert again == run(windows, tmp_path / "b" / "out", other)


@pytest.mark.parametrize(("keep", "n_fits"), [(1, 4), (2, 3), ("all", 0)])
def test_other_candidates_need_the_fits_that_are_kept(windows, tmp_path, fits, keep, n_fits):
    kept = {"machine": {"keep_fits": keep}}
    run(windows, tmp_path / "a" / "out", kept)
    n_kept = 5 if keep == "all" else keep
    folder = tmp_path / "a" / "store" / "fits"
    assert len([entry for entry in folder.iterdir() if entry.name != "locks"]) == n_kept
    fits.clear()
    other = {"evaluation": {"split": "valid"}}
    again = run(windows, tmp_path / "a" / "out", other | kept)
    assert len(fits) == n_fits
    assert again == run(windows, tmp_path / "b" / "out", other)


@pytest.mark.parametrize(
    "sections",
    [
        {"model": {"n_head": 1}},
        {"task": {"mlm_probability": 0.2}},
        {"loss": {"label_smoothing": 0.1}},
        {"training": {"learning_rate": 0.02}},
        {"training": {"seed": 2}},
        {"training": {"precision": "bfloat16"}},
    ],
)
def test_another_setting_meets_no_old_state(windows, tmp_path, fits, sections):
    run(windows, tmp_path / "out")
    fits.clear()
    run(windows, tmp_path / "out", sections)
    assert len(fits) == len(DAYS)


def test_other_sessions_are_fitted_from_where_they_differ(windows, tmp_path, fits):
    run(windows, tmp_path / "out", {"machine": {"keep_fits": "all"}})
    fits.clear()
    other = tmp_path / "windows"
    shutil.copytree(windows, other)
    path = window_path(other, "day", day(2), "train")
    write_parquet(path, pq.read_table(path, partitioning=None).slice(1))
    run(other, tmp_path / "out", {"machine": {"keep_fits": "all"}})
    assert fits == [day(2), day(3), day(4)]


@pytest.mark.parametrize("kind", ["fits", "evaluations"])
@pytest.mark.parametrize("damage", ["garbled", "cut", "lost"])
def test_what_is_damaged_is_named_set_aside_and_done_again(windows, tmp_path, caplog, kind, damage):
    first = run(windows, tmp_path / "out")
    for path in (tmp_path / "store" / kind).rglob("*.*"):
        if path.suffix in (".safetensors", ".parquet"):
            held = bytearray(path.read_bytes())
            path.unlink()
            held[-3] ^= 1
            if damage != "lost":
                path.write_bytes(held if damage == "garbled" else held[:-7])
    assert run(windows, tmp_path / "out") == first
    assert "damaged" in caplog.text
    assert list((tmp_path / "store" / kind).glob("*.damaged"))


def test_what_another_machine_wrote_is_told_or_left_alone(
    windows, tmp_path, caplog, monkeypatch, fits
):
    first = run(windows, tmp_path / "out")
    fits.clear()
    monkeypatch.setattr("dayahead.train.cached_windows.platform.machine", lambda: "sparc")
    assert run(windows, tmp_path / "out") == first
    assert caplog.text.count("device x86_64, here sparc") == 1
    assert fits == []
    for n_fits in (len(DAYS), 0):
        assert run(windows, tmp_path / "out", {"machine": {"strict": True}}) == first
        assert len(fits) == n_fits
        fits.clear()
