"""A stage waits for no library that it does not use: each takes a second of every experiment."""

import subprocess
import sys
from pathlib import Path

import pytest

STAGES = Path(__file__).parents[2] / "stages"
PREPROCESSING = {"dask", "distributed", "merlin", "nvtabular"}
IMPORTED = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
print(*{name.split(".")[0] for name in sys.modules})
"""


@pytest.mark.parametrize(
    ("modules", "needed", "unneeded"),
    [
        (["train", "dayahead.serve.pyfunc"], {"torch", "mlflow"}, {*PREPROCESSING, "matplotlib"}),
        (["aggregate"], {"matplotlib"}, {*PREPROCESSING, "numba", "torch", "transformers"}),
    ],
    ids=["train, which packages what is served", "aggregate"],
)
def test_a_stage_imports_what_it_uses(modules, needed, unneeded):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", IMPORTED, *modules],
        capture_output=True, text=True, check=True, cwd=STAGES,
    )  # fmt: skip
    found = set(done.stdout.split())
    assert needed <= found
    assert not unneeded & found
