"""Fixtures of the training tests: studies on one process and on two, run once."""

from functools import cache

import pytest

from support.process_studies import AT_ONCE, PROTOCOLS, VARIANTS, run_both_ways


@pytest.fixture(scope="session")
def both_ways(tmp_path_factory):
    """Studies on one process and on two: all the fast ones together, and all the slow ones."""

    @cache
    def done(is_slow):
        names = [name for name in VARIANTS if (name not in AT_ONCE) == is_slow]
        names += [] if is_slow else PROTOCOLS
        return run_both_ways(tmp_path_factory.mktemp("runs"), names)

    return done


@pytest.fixture
def runs(both_ways, name):
    """Where the study `name` was done on one process, and where on two."""
    return both_ways(name in VARIANTS and name not in AT_ONCE)
