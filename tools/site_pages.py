"""Collect the pages of the site in build/pages: docs/, its tutorials with their outputs.

Outputs come from build/tutorials, where `make tutorials` writes them; a tutorial that has changed
since is shown without them.

Command: python tools/site_pages.py
"""

import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def collect(root: Path) -> list[str]:
    """Write build/pages; return the names of the tutorials that have no current outputs."""
    pages, executed = root / "build" / "pages", root / "build" / "tutorials"
    shutil.rmtree(pages, ignore_errors=True)
    shutil.copytree(
        root / "docs", pages, ignore=shutil.ignore_patterns("__pycache__", "copy_project.py")
    )
    without = []
    for source in sorted((root / "docs" / "tutorials").glob("*.md")):
        page = executed / source.name
        if not page.is_file() or page.stat().st_mtime < source.stat().st_mtime:
            without.append(source.stem)
            continue
        for file in (page, *executed.glob(f"{source.stem}-*.png")):
            shutil.copy(file, pages / "tutorials")
    return without


if __name__ == "__main__":
    if missing := collect(ROOT):
        sys.stdout.write(f"Without outputs, until `make tutorials` runs: {', '.join(missing)}\n")
