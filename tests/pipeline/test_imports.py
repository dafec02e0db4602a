"""A stage waits for no library that it does not use: each takes a second of every experiment."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PREPROCESSING = {"dask", "distributed", "merlin", "nvtabular"}
IMPORTED = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
print(*{name.split(".")[0] for name in sys.modules})
"""


def imports_of(script):
    """Modules that a script imports, within its functions too."""
    tree = ast.parse((ROOT / script).read_text(encoding="utf-8"))
    return [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]


@pytest.mark.long
@pytest.mark.parametrize(
    ("modules", "needed", "unneeded"),
    [
        pytest.param(
            imports_of("stages/train.py"),
            {"torch"},
            {*PREPROCESSING, "matplotlib", "mlflow"},
            id="train",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            ["dayahead.serve.pyfunc"],
            {"mlflow"},
            {*PREPROCESSING, "matplotlib"},
            id="what is served",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            imports_of("stages/aggregate.py"),
            {"matplotlib"},
            {*PREPROCESSING, "numba", "torch", "transformers", "mlflow"},
            id="aggregate",
        ),
    ],
)
def test_a_stage_imports_what_it_uses(modules, needed, unneeded):
    command = [sys.executable, "-W", "ignore", "-c", IMPORTED, *modules]
    found = set(subprocess.check_output(command, text=True).split())
    assert needed <= found
    assert not unneeded & found
