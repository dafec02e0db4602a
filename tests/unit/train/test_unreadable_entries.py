"""Cached entries that hold what their hashes name, and still cannot be used, are made again."""

import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from dayahead.core.files import read_json, write_json
from dayahead.core.fingerprints import sha256_of
from dayahead.distributed.launch import main_process
from dayahead.model.tensor_files import write_tensors
from dayahead.train.cached_windows import STATE, CachedWindows
from dayahead.train.catalogue import Catalogue
from dayahead.train.checks import select_windows
from dayahead.train.stage import train
from dayahead.windows.folder import WindowFolder
from support.cached_runs import KEEP_ALL, run
from support.tiny_settings import tiny_study
from support.window_folders import day


@pytest.fixture
def windows(five_days):
    return five_days


def lose_files(entry):
    for path in files_of(entry):
        path.unlink()


def lose_state(entry):
    (entry / STATE).unlink()


def write_no_tensors(entry):
    (entry / STATE).write_bytes(b"no tensors")


def rewrite_tensors(change):
    def damage(entry):
        state = load_file(entry / STATE)
        save_file(dict(change(*each) for each in state.items()), entry / STATE)

    return damage


rename_tensors = rewrite_tensors(lambda name, value: (f"other.{name}", value))


def rewrite(name, change):
    def damage(entry):
        value = read_json(entry / name)
        change(value)
        write_json(entry / name, value)

    return damage


UNREADABLE = {
    "an empty entry": ("fits", lose_files),
    "no state": ("fits", lose_state),
    "no tensors": ("fits", write_no_tensors),
    "tensors of other names": ("fits", rename_tensors),
    "tensors of other shapes": (
        "fits",
        rewrite_tensors(lambda name, value: (name, torch.stack([value, value]))),
    ),
    "moments of other names": ("fits", rewrite_tensors(lambda name, value: (f"{name}.x", value))),
    "no machine": ("fits", rewrite("fit.json", lambda about: about.pop("machine"))),
    "no seconds": ("fits", rewrite("fit.json", lambda about: about["fit"].update(seconds=0))),
    "no fit": ("fits", rewrite("fit.json", lambda about: about.update(fit=[]))),
    "a text": ("fits", rewrite("fit.json", lambda about: about["fit"].update(n_sessions="few"))),
    "an empty evaluation": ("evaluations", lose_files),
    "another window": (
        "evaluations",
        rewrite("evaluated.json", lambda about: about.update(window="../../2026-01-02")),
    ),
    "no rates": ("evaluations", rewrite("evaluated.json", lambda about: about.update(timing={}))),
    "no loss": (
        "evaluations",
        rewrite("evaluated.json", lambda about: about.update(train_loss="low")),
    ),
}
FAST = ("no tensors", "no fit", "another window")


def files_of(entry):
    return [path for path in entry.rglob("*") if path.is_file() and path.name != "contents.json"]


def hash_again(entry):
    """Let the hashes of an entry be those of its files."""
    hashes = {path.relative_to(entry).as_posix(): sha256_of(path) for path in files_of(entry)}
    write_json(entry / "contents.json", hashes)


@pytest.mark.parametrize(
    "case", [pytest.param(n, marks=() if n in FAST else pytest.mark.slow) for n in UNREADABLE]
)
def test_an_entry_that_is_valid_by_its_hashes_but_unreadable_is_set_aside_and_made_again(
    windows, finished, caplog, fits, case
):
    files, out = finished
    kind, damage = UNREADABLE[case]
    folder = out.with_name("cache") / kind
    entries = [path for path in folder.iterdir() if path.name != "locks"]
    newest = max(entries, key=lambda path: path.stat().st_mtime)
    damage(newest)
    hash_again(newest)
    assert run(windows, out, KEEP_ALL) == files
    assert caplog.text.count("damaged (") == 1
    assert [path.name for path in folder.glob("*.damaged")] == [f"{newest.name}.damaged"]
    assert fits == ([day(4)] if kind == "fits" else [])
    assert run(windows, out, KEEP_ALL) == files
    assert caplog.text.count("damaged (") == 1


def test_a_refused_fit_leaves_the_model_that_the_run_has(windows, finished, fits):
    """The evaluation of the third window is lost, so its fit is restored over that of the second,
    which this run has made: where it cannot be, the third is fitted from the second."""
    files, out = finished
    cache = out.with_name("cache")
    study = tiny_study(windows, out, KEEP_ALL, cache=cache)
    process = main_process(study.params.compute)
    all_windows, _ = select_windows(WindowFolder(windows), study.params)
    catalogue = Catalogue(WindowFolder(windows), study.params.model)
    cached = CachedWindows(study, catalogue, all_windows, process)
    for index, damage in ((1, lose_files), (2, rename_tensors)):
        entry = cache / "fits" / cached.keys.fits[index]
        damage(entry)
        hash_again(entry)
    for index in (1, 2):
        shutil.rmtree(cache / "evaluations" / cached.evaluation_key(index))
    assert run(windows, out, KEEP_ALL) == files
    assert fits == [day(1), day(2)]


@pytest.mark.parametrize(
    ("architecture", "name"),
    [("slist", "gram.indices"), ("memory", "memory.memories.sessions.items")],
)
def test_a_fit_with_indices_out_of_range_is_set_aside(
    windows, tmp_path, caplog, fits, architecture, name
):
    """As one that was copied from another clone: its hashes are those of its files."""
    sections = {"model": {"architecture": architecture}}
    study = tiny_study(windows, tmp_path / "out", sections, last=day(2), cache=tmp_path / "cache")
    train(study)
    [*_, entry] = sorted((tmp_path / "cache" / "fits").glob("[!.]*/fit.json"))
    state = load_file(entry.with_name(STATE))
    [name] = [each for each in state if each.endswith(name)]
    write_tensors(entry.with_name(STATE), state | {name: torch.full_like(state[name], 2**31 - 1)})
    hash_again(entry.parent)
    fits.clear()
    train(tiny_study(windows, tmp_path / "out", sections, last=day(3), cache=tmp_path / "cache"))
    assert "expected values" in caplog.text
    assert len(list(entry.parent.parent.glob("*.damaged"))) == 1
    assert fits[-1] == day(3)
