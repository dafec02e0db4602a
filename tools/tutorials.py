"""Execute the tutorials and write them with their outputs to build/tutorials.

Each becomes a notebook (NAME.ipynb) and a page (NAME.md, with its images), which `make docs` shows.

Command: python tools/tutorials.py [NAME ...]
"""

import argparse
import base64
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from textwrap import TextWrapper

import jupytext
import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellControlSignal, DeadKernelError
from traitlets.config import Config

ROOT = Path(__file__).parents[1]
TUTORIALS = ROOT / "docs" / "tutorials"
OUTPUT = ROOT / "build" / "tutorials"
SECONDS_PER_CELL = 600
MAGIC = re.compile(r"^%%(\w+)\n")
TABLE_ROW = re.compile(r"\||\S {3}")
WIDTH = 84
"""Characters in a line of output."""
FOLD = TextWrapper(WIDTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
TERMINAL_COLOR = re.compile(r"\x1b\[[0-9;]*m")


def execute(source: Path, into: Path) -> nbformat.NotebookNode:
    """Execute a notebook in the folder of its source; write what ran, also if a cell fails.

    Raises:
        CellControlSignal: a cell failed, or took too long.
        DeadKernelError: a cell ended its process.
    """
    notebook = jupytext.read(source)
    where = {"metadata": {"path": str(source.parent)}}
    # A kernel deletes its copy of the project when it ends, which takes time on a busy machine.
    kernel = {"transport_encryption": "required", "shutdown_wait_time": 60.0}
    client = NotebookClient(
        notebook,
        timeout=SECONDS_PER_CELL,
        kernel_name="python3",
        resources=where,
        config=Config({"KernelManager": kernel}),
    )
    try:
        client.execute()
    finally:
        into.mkdir(parents=True, exist_ok=True)
        nbformat.write(notebook, into / f"{source.stem}.ipynb")
    return notebook


def write_page(notebook: nbformat.NotebookNode, name: str, into: Path) -> None:
    """Write a notebook as Markdown; each output follows the code that gave it."""
    blocks: list[str] = []
    for number, cell in enumerate(notebook.cells, start=1):
        if cell.cell_type == "markdown":
            blocks.append(cell.source)
            continue
        magic = MAGIC.match(cell.source)
        blocks.append(_fenced(MAGIC.sub("", cell.source), magic[1] if magic else "python"))
        blocks.extend(_outputs(cell, into, f"{name}-{number}"))
    (into / f"{name}.md").write_text("\n\n".join(blocks) + "\n", encoding="utf-8")


def _outputs(cell: nbformat.NotebookNode, into: Path, image: str) -> Iterator[str]:
    """Yield what a cell printed, then its results and charts."""
    streams = [output.text for output in cell.outputs if output.output_type == "stream"]
    if streams:
        yield _fenced(_wrapped("".join(streams)), "text")
    for number, output in enumerate(each for each in cell.outputs if "data" in each):
        if "image/png" in output.data:
            file = f"{image}-{number}.png"
            (into / file).write_bytes(base64.b64decode(output.data["image/png"]))
            yield f"![A chart of the numbers above]({file})"
        elif "text/html" in output.data:
            yield _plain_table(output.data["text/html"])
        else:
            yield _fenced(output.data["text/plain"], "text")


def _wrapped(text: str) -> str:
    """Fold long lines at blanks, apart from rows of tables."""
    return "\n".join(
        line if len(line) <= WIDTH or TABLE_ROW.search(line) else FOLD.fill(line)
        for line in text.splitlines()
    )


def _plain_table(html: str) -> str:
    """Return a table of pandas without its style: extra.css has that of the page."""
    html = re.sub(r"<style.*?</style>", "", html, flags=re.DOTALL)
    html = re.sub(r"<(table|tr)\b[^>]*>", r"<\1>", html).replace("<div>", '<div class="output">')
    return "\n".join(line.strip() for line in html.splitlines() if line.strip())


def _fenced(text: str, language: str) -> str:
    return f"```{language}\n{TERMINAL_COLOR.sub('', text).strip()}\n```"


def main() -> int:
    """Return 1 if a tutorial failed; the others are executed all the same."""
    names = sorted(path.stem for path in TUTORIALS.glob("*.md"))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(names)}; all")
    given = parser.parse_args().names
    if unknown := sorted({*given} - {*names}):
        sys.exit(f"error: no tutorial {', '.join(unknown)}; expected {', '.join(names)}")
    status = 0
    for name in given or names:
        start = time.monotonic()
        try:
            write_page(execute(TUTORIALS / f"{name}.md", OUTPUT), name, OUTPUT)
            result = "executed"
        except (CellControlSignal, DeadKernelError) as error:
            result, status = f"error: {error}", 1
        sys.stdout.write(f"{name}: {result} in {time.monotonic() - start:.0f} s\n")
        sys.stdout.flush()
    return status


if __name__ == "__main__":
    sys.exit(main())
