"""Verbs that answer at once import nothing that takes seconds."""

import json
import os
import subprocess
import sys

import pytest

from dayahead.core.cache import Cache
from support.pretended_nights import after_nights
from support.results_folders import write_results

HEAVY = {
    *("torch", "transformers", "mlflow", "dvc", "numba", "dask", "nvtabular", "optuna"),
    "scipy.stats",
}
VERBS = {
    **dict.fromkeys(("--help", "nightly --help", "nightly --status", "preset tiny/seed"), 0),
    **dict.fromkeys(("preset", "summary", "cache", "tune", "compare results other"), 0),
    "table results other --format latex": 0,
    "track": 1,  # it expects an option
}
"""By exit status."""
ROLLBACK = {"nightly --rollback --reason slow": 0}
CALL = """
import json, sys
from dayahead.__main__ import main
for line in json.loads(sys.argv[1]):
    sys.argv[1:] = line.split()
    try:
        main()
        status = 0
    except SystemExit as ended:
        status = ended.code or 0
    print("ended:", json.dumps([line, bool(status), [*sys.modules]]))
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A project with three nights behind it, results, and an entry in its cache."""
    root = tmp_path_factory.mktemp("project")
    after_nights(root, 4)
    ranks = {f"2026-01-0{day}": [1, 2, 3, 4, 5] for day in range(2, 9)}
    for name in ("results", "other"):
        write_results(root / name, ranks)
    (root / "presets").mkdir()
    (root / "searches").mkdir()
    (root / "presets/tiny.yaml").write_text("rows: {seed: {training: {seed: 3}}}\n")
    Cache(root / ".dayahead/fits").put("a", lambda folder: (folder / "x").touch())
    return root


@pytest.mark.parametrize(
    "verbs",
    [VERBS, pytest.param(ROLLBACK, marks=pytest.mark.slow)],  # that draws the page
    ids=["at once", "rollback"],
)
def test_light_verbs_load_nothing_heavy(project, verbs):
    """One after the other in one process; the first one that loads something is named."""
    environment = {**os.environ, "DVC_ROOT": str(project)}
    done = subprocess.run(
        [sys.executable, "-c", CALL, json.dumps([*verbs])],
        cwd=project, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    ended = [line for line in done.stdout.splitlines() if line.startswith("ended: ")]
    found = [json.loads(line.partition(" ")[2]) for line in ended]
    assert {line: status for line, status, _ in found} == verbs, done.stderr
    assert [(line, *HEAVY & {*modules}) for line, _, modules in found] == [(v,) for v in verbs]
