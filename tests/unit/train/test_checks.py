"""Selection of a run's windows, and errors about selections without anything to do."""

from types import SimpleNamespace

import pytest

from dayahead.core.errors import ConfigError
from dayahead.train.checks import select_windows
from dayahead.windows.folder import Window
from support.tiny_settings import tiny_params


def folder_of(names, fitted_on=(), empty=()):
    """A folder of these windows; the test sessions of some are missing."""
    return SimpleNamespace(
        windows=tuple(Window(name, position, "") for position, name in enumerate(names)),
        statistics=SimpleNamespace(fitted_on=list(fitted_on), features={}, items=None),
        n_sessions=lambda window, role: int(window.name not in empty),
    )


def selected(folder, first=None, last=None):
    sections = {"window": {"first": first, "last": last}, "evaluation": {"split": "test"}}
    windows, evaluated = select_windows(folder, tiny_params(sections))
    return ["".join(window.name for window in each) for each in (windows, evaluated)]


@pytest.mark.parametrize(
    ("first", "last", "names"),
    [(None, None, "abcd"), ("b", None, "bcd"), (None, "c", "abc"), ("b", "c", "bc")],
)
def test_windows_from_first_to_last_are_selected(first, last, names):
    assert selected(folder_of("abcd"), first, last) == [names, names[1:]]


def test_windows_that_statistics_were_fitted_on_are_not_evaluated(tmp_path):
    assert selected(folder_of("abcd", fitted_on="ab")) == ["abcd", "cd"]


def test_windows_without_a_session_to_evaluate_are_left_out():
    assert selected(folder_of("abcd", empty="bd")) == ["abcd", "c"]


@pytest.mark.parametrize(
    ("folder", "first", "last", "message"),
    [
        (folder_of("abcd"), "x", None, r"window\.first: x is not among the 4 kept windows, a to d"),
        (folder_of("abcd"), None, "x", r"window\.last: x is not among"),
        (folder_of("abcd"), "c", "b", "is c to b;.*at least two"),
        (folder_of("abcd"), "c", "c", "is c to c;.*at least two"),
        (folder_of("a"), None, None, "is a to a;.*at least two"),
        (folder_of(""), None, None, "no window was kept"),
        (folder_of(""), "a", None, "no window was kept"),
        (folder_of("abc", fitted_on="abc"), None, None, "nothing to evaluate from a to c"),
        (folder_of("abcd", empty="bcd"), None, None, "evaluation.split: test has no session"),
    ],
)
def test_an_invalid_selection_is_an_error(folder, first, last, message):
    with pytest.raises(ConfigError, match=message):
        selected(folder, first, last)
