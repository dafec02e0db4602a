"""How long OpenMP's waiting threads spin, as torch's own libgomp says when it is loaded."""

import os
import subprocess
import sys

import pytest


def spins(**variables):
    """What libgomp takes for the number of spins, with these environment variables."""
    names = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
    environment = {name: value for name, value in os.environ.items() if name not in names}
    done = subprocess.run(
        [sys.executable, "-c", "import dayahead.model.rng"],
        env=environment | {"OMP_DISPLAY_ENV": "VERBOSE"} | variables,
        capture_output=True,
        text=True,
        check=True,
    )
    return {
        line.split("=")[1].strip(" '")
        for line in done.stderr.splitlines()
        if "GOMP_SPINCOUNT" in line
    }


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, "100"),
        ({"GOMP_SPINCOUNT": "7"}, "7"),
        ({"OMP_WAIT_POLICY": "ACTIVE"}, "30000000000"),
    ],
)
def test_threads_that_wait_soon_sleep_unless_the_user_says_otherwise(variables, expected):
    assert spins(**variables) == {expected}
