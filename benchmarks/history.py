"""The history of a machine's figures, so that a slower commit is seen: one JSON object per line."""

import json
import math
import os
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from measurement import machine

ROOT = Path(__file__).parents[1]
HISTORY = ROOT / "benchmarks" / "history.jsonl"
"""Git ignores it: figures of different machines have nothing in common."""
LESS_IS_FASTER = frozenset({"ms"})
"""Units. Of all others, more is faster."""


@dataclass(frozen=True)
class Figure:
    """A median, and where they matter the least and the most of its rounds."""

    value: float
    unit: str
    least: float | None = None
    most: float | None = None


def record(
    benchmark: str, settings: Mapping[str, Any], figures: Mapping[str, Figure], path: Path = HISTORY
) -> None:
    """Append figures to the history; print how each differs from the one before.

    Before means: the last entry of this benchmark with the same settings on the same machine.
    """
    entry = {
        "benchmark": benchmark,
        "machine": machine(),
        "settings": dict(settings),
        "commit": commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "load": round(os.getloadavg()[0], 1),
        "figures": {name: asdict(figure) for name, figure in figures.items()},
    }
    for line in changes(entry, last_like(entry, entries(path))):
        print(line, flush=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(entry) + "\n")


def commit() -> str:
    """Return the short hash of HEAD, with `+` where the working tree differs; empty without Git."""
    found = _git("rev-parse", "--short", "HEAD")
    return found + "+" * bool(_git("status", "--porcelain", "--untracked-files=no"))


def _git(*words: str) -> str:
    try:
        done = subprocess.run(
            ["git", *words], cwd=ROOT, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return ""
    return done.stdout.strip()


def entries(path: Path) -> list[dict[str, Any]]:
    """Return the entries of a history, oldest first.

    Raises:
        ValueError: a line is no JSON.
    """
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    found = []
    for number, line in enumerate(lines, start=1):
        try:
            found.append(json.loads(line))
        except ValueError as error:
            raise ValueError(
                f"{path}, line {number}: expected a JSON object, found {line[:40]!r}; delete the "
                f"line"
            ) from error
    return found


def last_like(entry: Mapping[str, Any], history: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the last entry of the same benchmark, machine and settings; None if there is none."""
    same = ("benchmark", "machine", "settings")
    alike = [old for old in history if all(old[key] == entry[key] for key in same)]
    return alike[-1] if alike else None


def changes(entry: Mapping[str, Any], before: Mapping[str, Any] | None) -> list[str]:
    """Return a line on each figure that both entries have."""
    if before is None:
        return [f"{HISTORY.name}: the first figures of this benchmark on this machine"]
    shared = [name for name in entry["figures"] if name in before["figures"]]
    lines = [_change(name, before["figures"][name], entry["figures"][name]) for name in shared]
    since = f"since {before['commit']} of {before['date'][:10]}, load {before['load']}"
    return [f"{HISTORY.name}: {since} (now {entry['load']})", *lines]


def _change(name: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    factor = now["value"] / before["value"] if before["value"] else math.nan
    is_faster = (factor > 1) != (now["unit"] in LESS_IS_FASTER)
    word = "faster" if is_faster else "slower"
    return (
        f"  {name}: {_short(before['value'])} -> {_short(now['value'])} {now['unit']}, "
        f"{abs(factor - 1):.1%} {word}"
    )


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
