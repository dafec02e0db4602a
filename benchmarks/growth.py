"""How the cost of a day grows: slopes, and what they predict for twice the size.

A day of the shop of shop_days.py, a quarter of its size or less, is fitted on and evaluated by
`memory` with gpt2, with one epoch and one thread. One factor at a time takes three sizes, each
twice the one before: sessions of a day, items, windows counted before, candidates of the head,
half-lives of each memory. A line through the logarithms of size and CPU seconds of a phase is the
power with which it grows; along the line from the last two sizes a fourth is predicted, and
measured.

Command: python benchmarks/growth.py [sessions] [items] [windows] [candidates] [half_lives]
"""

import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from tabulate import tabulate

from dayahead.config.loading import read_yaml
from dayahead.core.phases import read_phases
from measurement import print_header
from scratch_project import PROJECT, ScratchProject
from shop_days import set_size

BASE = {"sessions": 40_000, "items": 40_000, "windows": 1}
"""Of the rest, what params.yaml says."""
FACTORS = {
    "sessions": (20_000, 40_000, 80_000, 160_000),
    "items": (20_000, 40_000, 80_000, 160_000),
    "windows": (1, 2, 4, 8),
    "candidates": (25, 50, 100, 200),
    "half_lives": (1, 2, 4, 8),
}
HALF_LIVES = (1.0, 2.0, 4.0, 8.0, 16.0, 0.5, 0.25, 32.0)
"""Windows; so many of them, from the first, as a size says."""
PHASES = {
    "count": "fit/memory/count",
    "read": "fit/memory/memories",
    "head": "fit/memory/head",
    "network": "fit/network",
    "fit": "fit",
    "evaluation": "evaluate",
}
"""Phases of a profile by their name in the table."""
Costs = Mapping[str, float]
"""CPU seconds by name."""


def settings_of(size: Mapping[str, int]) -> dict[str, dict[str, Any]]:
    """Return the settings of params.yaml that are changed."""
    memory: dict[str, Any] = {}
    if "candidates" in size:
        memory["n_candidates"] = size["candidates"]
    if "half_lives" in size:
        settings = read_yaml(PROJECT / "params.yaml")["memory"]
        names = [name for name in settings if name.endswith("_half_lives")]
        memory |= {name: sorted(HALF_LIVES[: size["half_lives"]]) for name in names}
    return {
        "memory": memory,
        "training": {"epochs": 1, "fit_last": False},
        "compute": {"processes": 1, "threads": 1, "device": "cpu"},
        "profile": {"window": f"2026-01-{size['windows'] + 1:02d}"},
    }


def costs(size: Mapping[str, int]) -> Costs:
    """Return what a fit after so many windows costs, and the evaluation of its model."""
    with tempfile.TemporaryDirectory() as folder:
        project = ScratchProject.create(Path(folder), {"dataset": "synthetic"})
        days = size["windows"] + 2
        set_size(project, days=days, sessions_per_day=size["sessions"], n_items=size["items"])
        project.set("params.yaml", settings_of(size))
        project.prepare()
        project.run_stage("train")
        rows = read_phases(project.folder / "results" / "profile" / "phases.csv")
    seconds = {row.phase: row.cpu_seconds for row in rows}
    return {name: seconds[phase] for name, phase in PHASES.items()}


def rows_of(factor: str) -> list[dict[str, str]]:
    """Measure all sizes of a factor; return a row of the table for each phase."""
    *sizes, last = FACTORS[factor]
    found = [costs({**BASE, factor: size}) for size in (*sizes, last)]
    rows = []
    for name in PHASES:
        seconds = [each[name] for each in found]
        power, _ = np.polyfit(np.log(sizes), np.log(seconds[:-1]), 1)
        predicted = np.polyval(np.polyfit(sizes[-2:], seconds[-3:-1], 1), last)
        rows.append(
            {
                "factor": f"{factor} {', '.join(f'{size:,}' for size in (*sizes, last))}",
                "phase": name,
                "CPU s": ", ".join(f"{each:.1f}" for each in seconds),
                "power": f"{power:.2f}",
                "predicted": f"{predicted:.1f}",
                "predicted / measured": f"{predicted / seconds[-1]:.2f}",
            }
        )
    return rows


def main() -> None:
    """Measure the factors named, or all."""
    print_header()
    for factor in sys.argv[1:] or FACTORS:
        table = tabulate(rows_of(factor), headers="keys", tablefmt="github", disable_numparse=True)
        print(table, flush=True)


if __name__ == "__main__":
    main()
