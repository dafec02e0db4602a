"""Fixtures of the training tests: studies that are run once, with their caches; what is fitted."""

import shutil
from functools import cache

import pytest

from dayahead.train.run import Run
from support.cached_runs import DAYS, KEEP_ALL, run
from support.process_studies import FAST, PROTOCOLS, VARIANTS, run_both_ways
from support.window_folders import write_window_folder


@pytest.fixture(scope="session")
def both_ways(tmp_path_factory):
    """Studies on one process and on two: all fast ones in one launch, all slow ones in another."""

    @cache
    def run(is_slow):
        names = [name for name in (*VARIANTS, *PROTOCOLS) if (name not in FAST) == is_slow]
        return run_both_ways(tmp_path_factory.mktemp("runs"), names)

    return run


@pytest.fixture
def runs(both_ways, name):
    """Output folders of the study `name` on one process and on two."""
    return both_ways(name not in FAST)


@pytest.fixture(scope="session")
def five_days(tmp_path_factory):
    """The windows of a run with a cache."""
    return write_window_folder(tmp_path_factory.mktemp("windows"), DAYS)


@pytest.fixture(scope="session")
def finished_run(five_days, tmp_path_factory):
    """Files of a run with the default settings, and its folder with the output and the cache."""
    folder = tmp_path_factory.mktemp("finished")
    return run(five_days, folder / "out", KEEP_ALL), folder


@pytest.fixture
def finished(finished_run, tmp_path):
    """Files of that run, and a copy of its output folder, beside which lies a copy of its cache."""
    files, folder = finished_run
    return files, shutil.copytree(folder, tmp_path / "finished") / "out"


@pytest.fixture
def fits(monkeypatch):
    """Names of the windows that runs fit from now on, in order."""
    names = []
    fit_of = Run.fit

    def fit(self, windows):
        names.append(windows[-1].name)
        return fit_of(self, windows)

    monkeypatch.setattr(Run, "fit", fit)
    return names
