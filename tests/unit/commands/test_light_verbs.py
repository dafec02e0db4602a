"""Verbs that answer at once import nothing that takes seconds."""

import json
import os
import subprocess
import sys

import pytest

from dayahead.core.cache import Cache
from support.pretended_nights import run_nights
from support.results_folders import write_results

HEAVY = {"torch", "transformers", "mlflow", "dvc", "numba", "dask", "nvtabular"}
CALL = """
import json, sys, time
from dayahead.__main__ import main
try:
    main()
except SystemExit as ended:
    status = ended.code
modules = {name.partition(".")[0] for name in sys.modules}
print(json.dumps([status, time.process_time(), [*modules]]))
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A project with three nights behind it, results, and an entry in its cache."""
    root = tmp_path_factory.mktemp("project")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DVC_ROOT", str(root))
        run_nights(root, 4)
    ranks = {f"2026-01-0{day}": [1, 2, 3, 4, 5] for day in range(2, 9)}
    for name in ("results", "other"):
        write_results(root / name, ranks)
    (root / "presets/tiny").mkdir(parents=True)
    (root / "presets/tiny/seed.yaml").write_text("training: {seed: 3}\n")
    Cache(root / ".dayahead/fits").put("a", lambda folder: (folder / "x").touch())
    return root


@pytest.mark.parametrize(
    "line",
    [
        *("--help", "nightly --help", "nightly --status"),
        pytest.param("rollback --reason slow", marks=pytest.mark.slow),  # it draws the page
        *("preset tiny/seed", "summary"),
        *(
            pytest.param(line, marks=pytest.mark.slow)
            for line in ("cache", "preset", "compare results other")
        ),
    ],
)
def test_a_light_verb_loads_nothing_heavy(project, line):
    environment = {**os.environ, "DVC_ROOT": str(project)}
    words = [sys.executable, "-c", CALL, *line.split()]
    done = subprocess.run(
        words, cwd=project, env=environment, capture_output=True, text=True, check=False
    )
    status, _, modules = json.loads(done.stdout.splitlines()[-1])
    assert not status, done.stderr
    assert not HEAVY.intersection(modules)
