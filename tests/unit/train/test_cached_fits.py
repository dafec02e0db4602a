"""The course of a model: which fits are made, given which stand in the store."""

from types import SimpleNamespace

import pytest
import torch

from dayahead.distributed.process import Process, Rank
from dayahead.distributed.sharding import WHOLE
from dayahead.train.cached_windows import CachedWindows
from dayahead.train.run import Fit
from dayahead.train.window_schedule import WindowSchedule
from dayahead.windows.folder import Window
from support.tiny_settings import tiny_params

WINDOWS = [Window(name, position, "2026-01-01") for position, name in enumerate("abcdef")]
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
CARRIED = ("incremental", "sliding, carried")
every_protocol = pytest.mark.parametrize("protocol", PROTOCOLS)


class Recorder:
    """A run whose model is the list of fits it went through."""

    def __init__(self, protocol, keep):
        sections = {"training": PROTOCOLS[protocol], "machine": {"keep_fits": keep}}
        self.params = tiny_params(sections)
        self.process = Process(Rank(0, 1), torch.device("cpu"))
        self.shard = WHOLE
        self.model, self.fits, self.restored = [], [], []

    def fit(self, windows):
        self.fits.append("".join(window.name for window in windows))
        self.model = [] if self.params.training.starts_afresh else self.model
        self.model = [*self.model, windows[-1].position]
        return Fit(windows[-1], loss=0.5, n_sessions=1, seconds=1.0)

    def state(self):
        return {"model": torch.tensor(self.model)}

    def restore(self, window, state):
        """Where this is not the main process, the model comes from there."""
        self.model = list(range(window.position + 1)) if state is None else state["model"].tolist()
        self.restored.append(window.position)
        assert self.model[-1] == window.position


def course_over(store, protocol, keep="all"):
    """A course of a new run over what earlier ones left in a store."""
    run = Recorder(protocol, keep)
    states = CachedWindows(store, run, WINDOWS)
    states.keys = SimpleNamespace(fits=[f"key-{window.name}" for window in WINDOWS])
    return WindowSchedule(run, WINDOWS, states)


def gone(course, places):
    """Names of the windows that were fitted on, fit after fit, on the way to some places."""
    for place in places:
        fit = course.at(place)
        assert fit.window == WINDOWS[place] == WINDOWS[course.place]
    return course.run.fits


def left_standing(store, protocol, places):
    """Go the whole way, and leave only the states at some places."""
    course = course_over(store, protocol)
    gone(course, range(6))
    others = set(range(6)) - set(places)
    course.states.fits.remove([course.states.keys.fits[place] for place in others])


@every_protocol
def test_every_window_is_fitted_once_on_what_the_protocol_says(tmp_path, protocol):
    assert gone(course_over(tmp_path, protocol), [0, 1, 1, 2, 3, 4, 5, 5]) == FITTED_ON[protocol]


@every_protocol
def test_a_far_place_takes_the_fits_its_model_comes_from(tmp_path, protocol):
    course = course_over(tmp_path, protocol)
    assert gone(course, [3]) == FITTED_ON[protocol][0 if protocol in CARRIED else 3 : 4]
    assert course.run.model == ([0, 1, 2, 3] if protocol in CARRIED else [3])


@pytest.mark.parametrize(
    ("standing", "places", "carried", "fresh"),
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
@every_protocol
def test_only_fits_are_made_that_no_state_saves(
    tmp_path, protocol, standing, places, carried, fresh
):
    left_standing(tmp_path, protocol, standing)
    course = course_over(tmp_path, protocol)
    made = carried if protocol in CARRIED else fresh
    assert gone(course, places) == [FITTED_ON[protocol][place] for place in made]
    whole = list(range(places[-1] + 1))
    assert course.run.model == (whole if protocol in CARRIED else whole[-1:])
    if protocol not in CARRIED:  # no state but its own says anything about a place
        assert course.run.restored == [place for place in places if place in standing]


def test_what_is_told_of_a_fit_comes_out_of_the_store_with_it(tmp_path):
    made = course_over(tmp_path, "incremental").at(2)
    assert course_over(tmp_path, "incremental").at(2) == made


@pytest.mark.parametrize(
    ("keep", "standing"),
    [(1, [5]), (2, [4, 5]), (4, [2, 3, 4, 5]), ("all", [*range(6)])],
)
@every_protocol
def test_as_many_fits_stay_as_are_to_be_kept(tmp_path, protocol, keep, standing):
    gone(course_over(tmp_path, protocol, keep), range(6))
    found = {path.name for path in (tmp_path / "fits").glob("key-*")}
    assert found == {f"key-{WINDOWS[place].name}" for place in standing}


def test_fits_of_other_settings_stay(tmp_path):
    gone(course_over(tmp_path, "incremental", 1), range(3))
    others = course_over(tmp_path, "incremental", 1)
    others.states.keys = SimpleNamespace(fits=[f"other-{window.name}" for window in WINDOWS])
    gone(others, range(6))
    assert sorted(path.name for path in (tmp_path / "fits").glob("*-*")) == ["key-c", "other-f"]


def test_a_process_without_a_store_goes_where_the_main_one_is(tmp_path):
    main = course_over(tmp_path, "incremental")
    stands = (2, main.at(2))
    course = WindowSchedule(Recorder("incremental", "all"), WINDOWS, states=None)
    course.run.process = SimpleNamespace(told=lambda _: stands, is_main=False)
    assert gone(course, [4]) == ["d", "e"]
    assert course.run.model == [0, 1, 2, 3, 4]
