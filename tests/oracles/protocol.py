"""From window files to ranks and AOD in plain Python: popularity, own and transitions.

Incremental protocol: fitted on a window, evaluated on the next one. Scores are tuples, which
compare as the scores of docs/protocol.md do.
"""

import json
import math
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pyarrow.parquet as pq

FIRST_ITEM = 2
"""Vocabulary indices 0 and 1 are padding and unknown."""
Score = tuple[float, ...]


@dataclass
class Counts:
    """What the methods know after some fits."""

    popularity: Counter[int] = field(default_factory=Counter)
    """Events in the train sessions of the newest window."""
    followed: Counter[tuple[int, int]] = field(default_factory=Counter)
    """How often an item came directly after another one, in all windows so far."""
    seen: set[int] = field(default_factory=set)
    """Items of all train sessions so far."""

    def fit(self, sessions: list[list[int]]) -> None:
        """Count the train sessions of a window."""
        self.popularity = Counter(item for session in sessions for item in session)
        self.followed.update(pair for session in sessions for pair in pairwise(session))
        self.seen.update(self.popularity)


def kept_windows(folder: Path) -> list[str]:
    """Names of the kept windows, in order of time."""
    entries = json.loads((folder / "windows.json").read_text())["windows"]
    return [entry["window"] for entry in entries if entry["state"] == "kept"]


def sessions_of(folder: Path, window: str, role: str) -> dict[str, list[int]]:
    """Items of each session of a window, by its id, in the order of the file."""
    [path] = folder.glob(f"session_start_*={window}-{role}.parquet")
    table = pq.ParquetFile(path).read(["session_id", "item_id"])
    return dict(zip(table["session_id"].to_pylist(), table["item_id"].to_pylist(), strict=True))


def vocabulary(folder: Path) -> list[int]:
    """Indices of all items of the log."""
    return pq.ParquetFile(folder / "vocabulary" / "item_id.parquet").read()["index"].to_pylist()


def expected_ranks(
    folder: Path,
    method: str,
    *,
    role: str = "test",
    candidates: str = "seen",
    remind: str = "score",
) -> dict[str, dict[str, int]]:
    """Rank of the last item of each session by evaluated window; 0 where it was no candidate.

    `remind` is how a session's own items are ranked: score, none or first; `own` ranks them first.
    """
    counts = Counts()
    windows = kept_windows(folder)
    found = {}
    for fitted, evaluated in pairwise(windows):
        counts.fit(list(sessions_of(folder, fitted, "train").values()))
        allowed = counts.seen if candidates == "seen" else set(vocabulary(folder))
        rule = "first" if method == "own" else remind
        found[evaluated] = {
            session: rank_of(items[-1], items[:-1], counts, allowed, method, rule)
            for session, items in sessions_of(folder, evaluated, role).items()
        }
    return found


def rank_of(
    target: int, prefix: list[int], counts: Counts, allowed: set[int], method: str, remind: str
) -> int:
    """1 + the number of other candidates that score as high or higher; 0 for no candidate."""
    own = {item: n for n, item in enumerate(prefix, start=1) if item >= FIRST_ITEM}
    scores: dict[int, Score] = {}
    for item in allowed | own.keys():
        base = (0, counts.popularity[item])
        if method == "transitions":
            n_followed = counts.followed[prefix[-1], item]
            base = (0, n_followed, counts.popularity[item])
        if item in own and remind == "first":
            scores[item] = (1, own[item])
        elif item not in allowed:
            scores[item] = (-2,)
        elif item in own and remind == "none":
            scores[item] = (-1, own[item])  # the latest one first
        else:
            scores[item] = base
    if target not in scores:
        return 0
    return sum(score >= scores[target] for score in scores.values())


def metric(name: str, ranks: list[int], cutoff: int) -> float:
    """Recall, NDCG or MRR at a cutoff."""
    gain = {"recall": lambda _: 1.0, "ndcg": lambda r: 1 / math.log2(1 + r), "mrr": lambda r: 1 / r}
    return math.fsum(gain[name](rank) for rank in ranks if 0 < rank <= cutoff) / len(ranks)


def expected_aod(ranks: dict[str, dict[str, int]], name: str, cutoff: int) -> float:
    """The plain mean of a metric over windows."""
    values = [metric(name, list(of_window.values()), cutoff) for of_window in ranks.values()]
    return math.fsum(values) / len(values)
