"""Fixtures of the training tests: studies on one process and on two, run once; what was fitted."""

from functools import cache

import pytest

from dayahead.train.run import Run
from support.process_studies import FAST, PROTOCOLS, VARIANTS, run_both_ways


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
