"""Quality in production: the lists that services have shown, and the clicks that followed them.

A list is evaluated by the first click of its session after it, at most RESPONSE later and before
the next list. The rank of the click is the item's place in the list.
"""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa

from dayahead.core.columns import SECOND, USER_ID
from dayahead.core.errors import DataError
from dayahead.core.redaction import redacted
from dayahead.live.list_log import DEFAULT_LISTS, LISTS, N_LOGGED
from dayahead.metrics.metrics import Values, target_metric
from dayahead.nightly.official_log import OfficialLog
from dayahead.statistics.bootstrap import MIN_SESSIONS, percentiles, replicates
from dayahead.windows.folder import Window, WindowFolder

KEY: Final = "online"
"""Name of the figures among a decision's details."""
RESPONSE: Final = 1800 * SECOND
PART: Final = 6 * 3600 * SECOND
"""Length of the spans of which one at a time is in memory."""
METRICS: Final = (f"recall_at_{N_LOGGED}", f"ndcg_at_{N_LOGGED}")
Figures = dict[str, Any]
EMPTY: Final = pd.DataFrame({"owner": [], "variant": [], "clicked": [], "rank": []})


def online_details(root: Path, folder: WindowFolder, window: Window) -> dict[str, Any]:
    """Return a window's figures for a decision's details; empty where no lists are logged.

    They hold nothing back: what cannot be read is a sentence like others.
    """
    if not (root / DEFAULT_LISTS).exists():
        return {}
    try:
        found = online_figures(root, window.start_time, folder.ends[window.name])
    except (DataError, OSError, pa.ArrowException) as error:
        found = {"problem": redacted(f"lists are not joined with clicks: {error}")}
    return {KEY: found}


def online_figures(root: Path, start: int = 0, end: int | None = None) -> Figures:
    """Return how the lists that were served in a span of time are clicked, by variant.

    Args:
        root: of the project.
        start: microseconds since 1970.
        end: the first time that is not in the span; at the latest that of the official log.

    Returns:
        `lists`, and by `variants` the number of sessions and clicks and each of METRICS with its
        95 % interval over sessions: [mean, low, high], or [mean] for fewer than MIN_SESSIONS. With
        two variants also their `difference`. Without `end` also how many lists are `later` than the
        official log, if any, and its `end`.

    Raises:
        DataError: a log cannot be read.
    """
    log = OfficialLog.of(root)
    parts, n_lists = [EMPTY], 0
    for first, last in _parts(root, start, min(end or log.end, log.end)):
        lists = _lists(root, log, first, last)
        n_lists += len(lists)
        parts.append(_ranked(log, lists, first, last))
    found = pd.concat(parts).drop_duplicates(["owner", "clicked"], keep="last")
    by_variant = {str(name): _sums(rows) for name, rows in found.groupby("variant")}
    figures: Figures = {"lists": n_lists}
    if end is None and (n_later := _n_later(root, max(start, log.end))):
        figures["later"] = {"lists": n_later, "end": log.end}
    figures["variants"] = {name: _figures(sums) for name, sums in by_variant.items()}
    if len(by_variant) == 2:  # noqa: PLR2004
        both = by_variant.values()
        figures["difference"] = {name: _estimate(name, *both) for name in METRICS}
    return figures


def _parts(root: Path, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield spans of PART in which there may be lists."""
    with LISTS.reading(root / DEFAULT_LISTS) as connection:
        query = "SELECT min(time) FROM lists WHERE time >= ?"
        [first] = connection.execute(query, (start,)).fetchone()
    for each in range(end if first is None else first, end, PART):
        yield each, min(each + PART, end)


def _n_later(root: Path, end: int) -> int:
    """Return the number of lists from a time on."""
    with LISTS.reading(root / DEFAULT_LISTS) as connection:
        query = "SELECT count(*) FROM lists WHERE time >= ?"
        return int(connection.execute(query, (end,)).fetchone()[0])


def _lists(root: Path, log: OfficialLog, start: int, end: int) -> pd.DataFrame:
    """Return the lists of a span with the column `owner`, in order of time."""
    owner = "user" if log.owner == USER_ID else "session"
    query = (
        f"SELECT {owner}, time, variant, items FROM lists "  # noqa: S608
        f"WHERE time >= ? AND time < ? AND {owner} IS NOT NULL ORDER BY time, position"
    )
    with LISTS.reading(root / DEFAULT_LISTS) as connection:
        rows = connection.execute(query, (start, end)).fetchall()
    return pd.DataFrame(rows, columns=["owner", "time", "variant", "items"])


def _ranked(log: OfficialLog, lists: pd.DataFrame, start: int, end: int) -> pd.DataFrame:
    """Return the next click after each list, as EMPTY: rank is 0 where it is not in the list."""
    events = log.between(start, end + RESPONSE, lists["owner"].unique()) if len(lists) else ()
    parts = [pa.table(each, ["owner", "item", "time"]).to_pandas() for each in events]
    if not parts:
        return EMPTY
    clicks = pd.concat(parts).sort_values("time", kind="stable")
    clicks["clicked"] = clicks["time"]
    joined = pd.merge_asof(
        lists, clicks, on="time", by="owner",
        direction="forward", allow_exact_matches=False, tolerance=RESPONSE,
    ).dropna(subset=["item"])  # fmt: skip
    pairs = zip(joined["items"], joined["item"], strict=True)
    return joined.assign(rank=[_rank(*each) for each in pairs])[[*EMPTY]]


def _rank(items: str, clicked: str) -> int:
    shown = [str(item) for item in json.loads(items)]
    return shown.index(clicked) + 1 if clicked in shown else 0


def _sums(rows: pd.DataFrame) -> dict[str, Values]:
    """Return the sum of each metric, and the number of clicks, by session."""
    ranks = rows["rank"].to_numpy(np.int64)
    values = {name: target_metric(name, ranks) for name in METRICS} | {"clicks": np.ones(len(rows))}
    by_owner = pd.DataFrame(values).groupby(rows["owner"].to_numpy()).sum()
    return {name: by_owner[name].to_numpy() for name in values}


def _figures(sums: dict[str, Values]) -> Figures:
    counts = {"sessions": len(sums["clicks"]), "clicks": int(sums["clicks"].sum())}
    return counts | {name: _estimate(name, sums) for name in METRICS}


def _estimate(name: str, *variants: dict[str, Values]) -> list[float]:
    """Return the mean of a metric with its interval; of two variants, of their difference."""
    means = [float(each[name].sum() / each["clicks"].sum()) for each in variants]
    found = [means[-1] - sum(means[:-1])]
    if min(len(each["clicks"]) for each in variants) >= MIN_SESSIONS:
        drawn = [replicates(each[name], each["clicks"], n) for n, each in enumerate(variants)]
        found += percentiles(drawn[-1] - sum(drawn[:-1]))
    return found


def online_lines(found: Figures) -> list[str]:
    """Return the figures in words, a line each."""
    if "problem" in found:
        return [found["problem"]]
    n_clicks = sum(each["clicks"] for each in found["variants"].values())
    lines = [f"{found['lists']:,} lists served, {n_clicks:,} clicks within 30 minutes after one"]
    for name, each in found["variants"].items():
        counts = f"{each['sessions']:,} sessions, {each['clicks']:,} clicks"
        lines.append(f"{name}: {counts}, {_said(each)}")
    if "difference" in found:
        lines.append(f"B - A: {_said(found['difference'], '+')}")
    if later := found.get("later"):
        end = datetime.fromtimestamp(later["end"] / SECOND, UTC)
        lines.append(
            f"{later['lists']:,} lists are later than the official log, which ends at "
            f"{end:%Y-%m-%d %H:%M} UTC: their clicks are not known yet"
        )
    return lines


def _said(figures: Figures, sign: str = "") -> str:
    parts = []
    for name in METRICS:
        value, *ends = (f"{each:{sign}.4f}" for each in figures[name])
        title = name.replace("_at_", "@").replace("ndcg", "NDCG")
        parts.append(f"{title} {value}" + (f" ({ends[0]} to {ends[1]})" if ends else ""))
    return ", ".join(parts)
