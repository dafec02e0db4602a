"""Which fits a schedule does, given the fits in the cache."""

import math
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dayahead.distributed.process import Process, Rank
from dayahead.train.cached_windows import CachedWindows, is_spaced
from dayahead.train.catalogue import Catalogue
from dayahead.train.profiling import WindowProfile
from dayahead.train.run import Fit
from dayahead.train.stage import FitSchedule
from dayahead.train.study import Study
from dayahead.windows.folder import Window, WindowFolder
from support.tiny_settings import tiny_params

WINDOWS = [Window(name, position, "2026-01-01") for position, name in enumerate("abcdef")]
MANY = [Window(name, position, "2026-01-01") for position, name in enumerate("abcdefghijklmnop")]
PROTOCOLS = {
    "incremental": {"protocol": "incremental"},
    "sliding, carried": {"protocol": "sliding", "history": 3},
    "sliding, fresh": {"protocol": "sliding", "history": 3, "carry_model": False},
    "from scratch": {"protocol": "from_scratch"},
}
FITTED_ON = {
    "incremental": ["a", "b", "c", "d", "e", "f"],
    "sliding, carried": ["a", "ab", "abc", "bcd", "cde", "def"],
    "sliding, fresh": ["a", "ab", "abc", "bcd", "cde", "def"],
    "from scratch": ["a", "ab", "abc", "abcd", "abcde", "abcdef"],
}
WITH_CARRIED_MODEL = ("incremental", "sliding, carried")
every_protocol = pytest.mark.parametrize("protocol", PROTOCOLS)
carried_and_fresh = pytest.mark.parametrize("protocol", ["incremental", "sliding, fresh"])


class Recorder:
    """A run whose model is the list of windows it was fitted on."""

    def __init__(self, protocol, keep, evaluation):
        sections = {"training": PROTOCOLS[protocol], "machine": {"keep_fits": keep}}
        self.params = tiny_params({**sections, "evaluation": evaluation})
        self.process = Process(Rank(0, 1), torch.device("cpu"))
        self.model, self.fits, self.restored = [], [], []

    def fit(self, windows):
        self.fits.append("".join(window.name for window in windows))
        self.model = [] if self.params.training.starts_afresh else self.model
        self.model = [*self.model, windows[-1].position]
        return Fit(windows[-1], loss=0.5, n_sessions=1, seconds=1.0)

    def state(self):
        return {"model": torch.tensor(self.model)}

    def restore(self, window, state):
        """Without a state, as on other processes, set the model that the main process has."""
        self.model = list(range(window.position + 1)) if state is None else state["model"].tolist()
        self.restored.append(window.position)
        assert self.model[-1] == window.position


def schedule_over(cache, protocol, keep="all", windows=WINDOWS, evaluation=None):
    """The schedule of a new run with this cache."""
    run = Recorder(protocol, keep, evaluation or {})
    study = Study(params=run.params, cache=cache)
    catalogue = Catalogue(WindowFolder(study.windows), run.params.model)
    cached = CachedWindows(study, catalogue, windows, run.process)
    cached.keys = SimpleNamespace(fits=[f"key-{window.name}" for window in windows])
    profile = WindowProfile(run.params.profile, run.process, cache)
    return FitSchedule(run, windows, cached, profile)


def fits_up_to(schedule, indices):
    """Bring the model to some windows in turn; return the windows of each fit done for that."""
    with schedule.cached:
        for index in indices:
            fit = schedule.fit_up_to(index)
            assert fit.window == schedule.windows[index] == schedule.windows[schedule.index]
    return schedule.run.fits


def fit_up_to(schedule, index):
    """Bring the model to a window; return its fit."""
    with schedule.cached:
        return schedule.fit_up_to(index)


def keep_only(cache, protocol, indices):
    """Fit all windows, and leave the fits of some in the cache."""
    schedule = schedule_over(cache, protocol)
    fits_up_to(schedule, range(6))
    others = set(range(6)) - set(indices)
    schedule.cached.fits.remove([schedule.cached.keys.fits[index] for index in others])


@every_protocol
def test_every_window_is_fitted_once_on_the_windows_of_its_protocol(tmp_path, protocol):
    schedule = schedule_over(tmp_path, protocol)
    assert fits_up_to(schedule, [0, 1, 1, 2, 3, 4, 5, 5]) == FITTED_ON[protocol]


@every_protocol
def test_only_the_fits_that_a_windows_model_depends_on_are_done(tmp_path, protocol):
    schedule = schedule_over(tmp_path, protocol)
    assert (
        fits_up_to(schedule, [3])
        == FITTED_ON[protocol][0 if protocol in WITH_CARRIED_MODEL else 3 : 4]
    )
    assert schedule.run.model == ([0, 1, 2, 3] if protocol in WITH_CARRIED_MODEL else [3])


@pytest.mark.parametrize(
    ("cached", "indices", "carried", "fresh"),
    [
        ([5], [5], [], []),
        ([2], [5], [3, 4, 5], [5]),
        ([2], [3, 4, 5], [3, 4, 5], [3, 4, 5]),
        ([2, 3], [4, 5], [4, 5], [4, 5]),
        ([4], [2, 5], [0, 1, 2, 5], [2, 5]),
        ([1, 4], [2, 5], [2, 5], [2, 5]),
        ([0, 2, 4], [1, 3, 5], [1, 3, 5], [1, 3, 5]),
        ([0, 2, 4], [2, 3], [3], [3]),
    ],
)
@carried_and_fresh
def test_cached_fits_are_not_repeated(tmp_path, protocol, cached, indices, carried, fresh):
    keep_only(tmp_path, protocol, cached)
    schedule = schedule_over(tmp_path, protocol)
    fitted = carried if protocol in WITH_CARRIED_MODEL else fresh
    assert fits_up_to(schedule, indices) == [FITTED_ON[protocol][index] for index in fitted]
    whole = list(range(indices[-1] + 1))
    assert schedule.run.model == (whole if protocol in WITH_CARRIED_MODEL else whole[-1:])
    if protocol not in WITH_CARRIED_MODEL:  # a fresh model depends on no other fit
        assert schedule.run.restored == [index for index in indices if index in cached]


def test_a_cached_fit_equals_the_fit(tmp_path):
    fit = fit_up_to(schedule_over(tmp_path, "incremental"), 2)
    again = schedule_over(tmp_path, "incremental")
    assert fit_up_to(again, 2) == fit
    assert again.run.fits == []


def kept_in(cache):
    """Names of the windows whose fits are in the cache, as one string."""
    return "".join(sorted(path.name[-1] for path in (cache / "fits").glob("key-*")))


@pytest.mark.parametrize(
    ("keep", "carried", "fresh"),
    [
        (1, "p", "p"),
        (2, "hlnop", "op"),
        (3, "hlnop", "nop"),
        (4, "hlmnop", "mnop"),
        ("all", "abcdefghijklmnop", "abcdefghijklmnop"),
    ],
)
@carried_and_fresh
def test_the_cache_keeps_the_newest_fits_and_of_a_carried_model_some_older_ones(
    tmp_path, protocol, keep, carried, fresh
):
    fits_up_to(schedule_over(tmp_path, protocol, keep, MANY), range(16))
    assert kept_in(tmp_path) == (carried if protocol in WITH_CARRIED_MODEL else fresh)


@pytest.mark.parametrize(
    ("n_earlier", "fits"),
    [(1, ""), (2, ""), (3, "m"), (4, ""), (5, "ijk"), (7, "i"), (8, ""), (9, "abcdefg")],
)
def test_an_earlier_last_window_needs_few_fits(tmp_path, n_earlier, fits):
    fits_up_to(schedule_over(tmp_path, "incremental", 2, MANY), range(16))
    earlier = schedule_over(tmp_path, "incremental", 2, MANY)
    assert fits_up_to(earlier, [15 - n_earlier]) == list(fits)


@given(newest=st.integers(0, 400), n_earlier=st.integers(1, 400))
def test_going_back_needs_fewer_than_twice_as_many_fits_as_windows(newest, n_earlier):
    kept = [index for index in range(newest + 1) if is_spaced(index, newest)]
    wanted = max(0, newest - n_earlier)
    n_fits = wanted - max((index for index in kept if index <= wanted), default=-1)
    assert n_fits < 2 * n_earlier
    assert len(kept) == math.floor(math.log2(newest + 1)) + 1


@given(index=st.integers(0, 200))
def test_a_fit_is_dropped_once_and_for_all(index):
    found = [is_spaced(index, newest) for newest in range(index, 1000)]
    assert found == sorted(found, reverse=True)


def test_a_run_stopped_after_each_window_leaves_no_more_fits_than_one_that_is_not(tmp_path):
    fits_up_to(schedule_over(tmp_path / "whole", "incremental", 2, MANY), range(16))
    for index in range(16):
        stopped = schedule_over(tmp_path / "stopped", "incremental", 2, MANY)
        assert fits_up_to(stopped, [index]) == [MANY[index].name]
    assert kept_in(tmp_path / "stopped") == kept_in(tmp_path / "whole")


def test_fits_of_other_settings_are_not_removed(tmp_path):
    fits_up_to(schedule_over(tmp_path, "incremental", 1), range(3))
    others = schedule_over(tmp_path, "incremental", 1)
    others.cached.keys = SimpleNamespace(fits=[f"other-{window.name}" for window in WINDOWS])
    fits_up_to(others, range(6))
    assert sorted(path.name for path in (tmp_path / "fits").glob("*-*")) == ["key-c", "other-f"]


def test_a_run_that_evaluates_otherwise_removes_no_fit_from_which_another_resumes(tmp_path):
    fits_up_to(schedule_over(tmp_path, "incremental", 2, MANY), range(6))
    assert kept_in(tmp_path) == "def"
    between = schedule_over(tmp_path, "incremental", 2, MANY, {"split": "test"})
    assert fits_up_to(between, range(16)) == list("abcghijklmnop")
    assert kept_in(tmp_path) == "defhlnop"
    resumed = schedule_over(tmp_path, "incremental", 2, MANY)
    assert fits_up_to(resumed, range(5, 16)) == list("gijkm")
    assert kept_in(tmp_path) == "hjlmnop"


def test_other_processes_restore_what_the_main_one_found(tmp_path):
    newest = (2, fit_up_to(schedule_over(tmp_path, "incremental"), 2))
    schedule = schedule_over(tmp_path / "unused", "incremental")
    schedule.cached.is_used = False
    schedule.run.process = SimpleNamespace(broadcast=lambda _: newest, is_main=False)
    assert fits_up_to(schedule, [4]) == ["d", "e"]
    assert schedule.run.model == [0, 1, 2, 3, 4]
    assert not (tmp_path / "unused" / "fits").exists()
