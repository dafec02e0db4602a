"""Write the results in README.md and docs/results.md that the commands above them give.

Figures of trained models have three digits: the fourth depends on the machine (docs/results.md).
A table between `<!-- figures -->` and `<!-- end of figures -->` is the summary of a run, with which
the commands in the block before it end. They run in a clean clone of the last commit. Without
$DAYAHEAD_DATA tables of real clicks stay as they are.

Command: python tools/docs_figures.py
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "README.md", ROOT / "docs" / "results.md")
FIGURES = re.compile(
    r"```bash\n(?P<commands>(?:(?!```).)*)```\n(?:(?!```).)*?"
    r"<!-- figures -->\n(?P<table>.*?)\n<!-- end of figures -->",
    re.DOTALL,
)
COLUMNS = {"ndcg_at_20": "NDCG@20", "recall_at_20": "recall@20"}
COUNTED = ("popularity", "own", "transitions", "cooccurrence")
"""Baselines whose figures are the same on every machine."""
STAMPS = (".uv-ready", ".ready", ".dev-ready")
"""Stamp files of the Makefile, in its order: touched, make leaves this environment as it is."""


def clone_project(folder: Path) -> None:
    """Clone the last commit, ready to run: its environment is the one that runs this."""
    subprocess.run(["git", "clone", "-q", ROOT, folder], check=True)
    (folder / ".venv").mkdir()
    for path in Path(sys.prefix).iterdir():
        if path.name not in STAMPS:
            (folder / ".venv" / path.name).symlink_to(path)
    for name in STAMPS:
        (folder / ".venv" / name).touch()


def is_runnable(commands: str) -> bool:
    """Tell whether the data that commands read are here."""
    return "dataset=" not in commands or "DAYAHEAD_DATA" in os.environ


def without_comments(commands: str) -> str:
    """Return commands as they run, so that equal ones run once."""
    return re.sub(r" +#.*", "", commands)


@cache
def table_of(commands: str) -> str:
    """Run commands in a clean clone and return the summary they end with, in Markdown."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "dayahead"
        clone_project(folder)
        apart = {"DVC_SITE_CACHE_DIR": f"{scratch}/site", "MLFLOW_TRACKING_URI": ""}
        done = subprocess.run(
            ["bash", "-e", "-c", commands],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": f"{folder}/src", **apart},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    return as_markdown(done.stdout)


def as_markdown(printed: str) -> str:
    """Return the last summary in a text as a table."""
    head, *rows = printed[printed.rindex("\nAOD ") :].strip().split("\n\n")[0].splitlines()
    lines = [f"| model | {' | '.join(COLUMNS.values())} |", "|---" * (1 + len(COLUMNS)) + "|"]
    for row in rows:
        cells = dict(zip(head.split(), row.split(), strict=True))
        digits = 4 if cells["AOD"] in COUNTED else 3
        values = " | ".join(f"{float(cells[name]):.{digits}f}".lstrip("0") for name in COLUMNS)
        lines.append(f"| `{cells['AOD']}` | {values} |")
    return "\n".join(lines)


def renewed(text: str) -> str:
    """Return a page with the tables that its commands give."""

    def block(found: re.Match[str]) -> str:
        if not is_runnable(found["commands"]):
            return found[0]
        return found[0].replace(found["table"], table_of(without_comments(found["commands"])))

    return FIGURES.sub(block, text)


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__.partition("\n")[0]).parse_args()
    for page in PAGES:
        page.write_text(renewed(page.read_text(encoding="utf-8")), encoding="utf-8")
