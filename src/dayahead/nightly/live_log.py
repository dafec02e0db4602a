"""The live log beside the official one: whether a service received a window's events.

The official log is data/raw, all events before any rule for sessions; the live log is what clients
have reported to `dayahead serve --live`. An event is found in the other log where session and item
are the same and the times differ by a minute at most. Without a column of sessions (they are cut by
gaps) users take their place.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dayahead.core.columns import ITEM_ID, SECOND, USER_ID
from dayahead.core.errors import DayaheadError
from dayahead.core.redaction import redacted
from dayahead.live.event_log import DEFAULT_LOG
from dayahead.live.sqlite_log import EVENTS
from dayahead.nightly.history import State, windows_of
from dayahead.nightly.official_log import OfficialLog
from dayahead.windows.folder import Window, WindowFolder

KEY: Final = "live_log"
"""Name of the comparison among a decision's details."""
SAME: Final = 60 * SECOND
"""Greatest difference between the times of an event in both logs."""
MARGIN: Final = 2 * 3600 * SECOND
"""Time before and after a window that is read, too."""
STEADY: Final = 20 * SECOND
"""Time differences within such a span count as one constant offset, that of a clock."""
MAX_CHANGE: Final = 0.1
"""Share of the events that may be missing, or come twice, beyond what is usual."""
MIN_OFF: Final = 0.02
"""Least share of the sessions, and least number, for a constant offset to be reported."""
MIN_OFF_SESSIONS: Final = 5
DEVIATIONS: Final = 3
"""Standard deviations that a share may differ from the usual one by chance."""
USUAL_OF: Final = 7
"""Earlier nights whose median counts as usual, once there are MIN_USUAL."""
MIN_USUAL: Final = 3
READ_AT_ONCE: Final = 50_000
EMPTY: Final = pd.DataFrame(
    dict.fromkeys(("session", "pair"), np.empty(0, np.uint64))
    | dict.fromkeys(("time", "arrived"), np.empty(0, np.int64))
)
"""Columns of events. Sessions, and pairs of session and item, are hashes, which take less memory;
times are in microseconds since 1970. Events of the official log lack `arrived`."""
_log = logging.getLogger(__name__)


def live_details(root: Path, folder: WindowFolder, window: Window, state: State) -> dict[str, Any]:
    """Compare both logs in a window, for a decision's details; empty where there is no live log.

    It holds nothing back: what cannot be compared is a finding like others.
    """
    if not (root / DEFAULT_LOG).exists():
        return {}
    span = window.start_time, folder.ends[window.name]
    try:
        found = _compared_files(root, span, earlier_figures(state, window.name))
    except (DayaheadError, OSError, pa.ArrowException) as error:
        found = {"findings": [redacted(f"not compared with the official log: {error}")]}
    for finding in found["findings"]:
        _log.warning("%s, window %s: %s", DEFAULT_LOG, window.name, finding)
    return {KEY: found}


def earlier_figures(state: State, window: str) -> list[Mapping[str, Any]]:
    """Return the comparisons of the windows before this one, the oldest first."""
    by_window = {
        windows_of(entry)[-1]: entry.details[KEY]
        for entry in state.decisions
        if windows_of(entry) and entry.details.get(KEY, {}).get("in_live") is not None
    }
    return [by_window[name] for name in sorted(by_window) if name < window]


def _compared_files(
    root: Path, span: tuple[int, int], earlier: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    start, end = span
    log = OfficialLog.of(root)
    by_user = log.owner == USER_ID
    first, live = _live_clicks(root / DEFAULT_LOG, start - MARGIN, end + MARGIN, by_user=by_user)
    if first is None:
        return {"findings": ["it holds no events: is POST /events called by the clients?"]}
    # What happened before the log begins cannot be in it.
    start = min(max(start, first), end)
    official = _official_clicks(log, start - MARGIN, end + MARGIN)
    hours = {"hours": _hours(start, end), "of_hours": _hours(*span)}
    return hours | compared(official, live, (start, end), earlier)


def _hours(start: int, end: int) -> float:
    return round((end - start) / (3600 * SECOND), 1)


def _live_clicks(
    path: Path, start: int, end: int, *, by_user: bool
) -> tuple[int | None, pd.DataFrame]:
    """Return when the first event of the log arrived, and its events in a span of time.

    Raises:
        DataError: it cannot be read.
    """
    owner = "coalesce(user, '')" if by_user else "session"
    query = (
        f"SELECT {owner}, json_extract(fields, '$.{ITEM_ID}'), time, arrived FROM events "  # noqa: S608
        f"WHERE time >= ? AND time < ?"
    )
    parts = [EMPTY]
    with EVENTS.reading(path) as connection:
        [first] = connection.execute("SELECT min(arrived) FROM events").fetchone()
        rows = connection.execute(query, (start, end))
        while some := rows.fetchmany(READ_AT_ONCE):
            owners, items, times, arrived = zip(*some, strict=True)
            ids = pa.array(owners, pa.string()), pa.array(map(str, items), pa.string())
            parts.append(_clicks(*ids, time=times, arrived=arrived))
    return first, pd.concat(parts)


def _official_clicks(log: OfficialLog, start: int, end: int) -> pd.DataFrame:
    """Return the events of data/raw in a span of time."""
    parts = (
        _clicks(owners, items, time=times.to_numpy())
        for owners, items, times in log.between(start, end)
    )
    return pd.concat([EMPTY.drop(columns="arrived"), *parts])


def _clicks(owners: pa.Array, items: pa.Array, **times: Any) -> pd.DataFrame:  # noqa: ANN401
    ids = {"session": owners, "pair": pc.binary_join_element_wise(owners, items, "\n")}
    hashes = {
        name: pd.util.hash_array(each.to_numpy(zero_copy_only=False), categorize=False)
        for name, each in ids.items()
    }
    return pd.DataFrame(hashes | times)


def compared(
    official: pd.DataFrame,
    live: pd.DataFrame,
    span: tuple[int, int],
    earlier: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """Compare the events of both logs in a span of time, and find what is not usual.

    Args:
        official: events of the span, and MARGIN before and after it, with the columns of EMPTY.
        live: the same, with their arrival.
        span: start and end, microseconds since 1970.
        earlier: what this returned for windows before.

    Returns:
        numbers of events, the shares of either log that are found in the other, the share that the
        live log has more often, the lag in seconds (median and 99th percentile), and findings, a
        sentence each. Figures that need events are null where there are none.
    """
    own, theirs = (_between(each, *span) for each in (official, live))
    lags = (theirs["arrived"] - theirs["time"]) / SECOND
    figures = {
        "live": len(theirs),
        "official": len(own),
        "in_live": _found_share(own, live),
        "in_official": _found_share(theirs, official),
        "extra": _extra(own, theirs),
        "lag": [round(float(q), 3) for q in np.percentile(lags, [50, 99])] if len(lags) else None,
    }
    off = _off_clock(official, live, span)
    return figures | {"findings": _findings(figures, own["session"].nunique(), off, earlier)}


def _between(clicks: pd.DataFrame, start: int, end: int) -> pd.DataFrame:
    """Return the events from a time on and before another."""
    return clicks[(clicks["time"] >= start) & (clicks["time"] < end)]


def _found_share(clicks: pd.DataFrame, other: pd.DataFrame) -> float | None:
    """Return the share of some events of one log that are found in the other."""
    if clicks.empty:
        return None
    pairs, times = (np.concatenate([clicks[name], other[name]]) for name in ("pair", "time"))
    # Each event as one number, of its pair and then its time, with more than SAME between pairs.
    _, codes = np.unique(pairs, return_inverse=True)
    milliseconds, same = (times - times.min()) // 1000, SAME // 1000
    numbers = codes * (milliseconds.max() + same + 1) + milliseconds
    wanted, known = numbers[: len(clicks)], np.sort(numbers[len(clicks) :])
    first = np.searchsorted(known, wanted - same)
    return round(float(np.mean(np.searchsorted(known, wanted + same, side="right") > first)), 4)


@dataclass(frozen=True)
class _Off:
    """Events whose times differ by the same between both logs."""

    n_events: int
    share: float
    """Of the events that were looked at."""
    seconds: float
    """Live minus official."""


def _off_clock(official: pd.DataFrame, live: pd.DataFrame, span: tuple[int, int]) -> _Off | None:
    """Find events whose times differ steadily, of sessions and items that each log has once."""
    own, theirs = (each.drop_duplicates("pair", keep=False) for each in (official, live))
    first, second = _shared(own["pair"], theirs["pair"])
    own, live_times = own.iloc[first], theirs["time"].to_numpy()[second]
    both = _between(own.assign(difference=live_times - own["time"]), *span)
    off = both[both["difference"].abs() > SAME].sort_values("difference")
    if off.empty:
        return None
    until = np.searchsorted(off["difference"], off["difference"] + STEADY, side="right")
    start = int(np.argmax(until - np.arange(len(off))))
    steady = off[start : until[start]]
    if steady["session"].nunique() < max(MIN_OFF_SESSIONS, MIN_OFF * both["session"].nunique()):
        return None
    seconds = float(steady["difference"].median()) / SECOND
    return _Off(len(steady), len(steady) / len(both), seconds)


def _shared(own: Any, theirs: Any) -> tuple[NDArray[np.intp], NDArray[np.intp]]:  # noqa: ANN401
    """Return the positions in either of the values that both have; each has a value once."""
    _, first, second = np.intersect1d(own, theirs, assume_unique=True, return_indices=True)
    return first, second


def _extra(official: pd.DataFrame, live: pd.DataFrame) -> float | None:
    """Return the share of events that the live log has more often, of what both logs have."""
    (own, n_own), (theirs, n_theirs) = (
        np.unique(each["pair"], return_counts=True) for each in (official, live)
    )
    first, second = _shared(own, theirs)
    if not len(first):
        return None
    n_more = np.maximum(n_theirs[second] - n_own[first], 0)
    return round(float(n_more.sum() / n_own[first].sum()), 4)


def _findings(
    figures: Mapping[str, Any],
    n_sessions: int,
    off: _Off | None,
    earlier: Sequence[Mapping[str, Any]],
) -> list[str]:
    found = []
    if off is not None:
        where = "ahead of" if off.seconds > 0 else "behind"
        found.append(
            f"{off.n_events:,} events ({_percent(off.share)}) are {_shown(abs(off.seconds))} "
            f"{where} their times in the official log: a client's clock or time zone is wrong"
        )
    usual = _usual(earlier, "in_live", 1.0)
    in_live = figures["in_live"]
    # Shifted events are not missing.
    at_same_time = 1 - (off.share if off else 0)
    expected = (usual * (1 - MAX_CHANGE) - _noise(usual, n_sessions)) * at_same_time
    if in_live is not None and in_live < expected:
        found.append(
            f"{_percent(1 - in_live)} of the official log's events are missing in the live log, "
            f"usually {_percent(1 - usual)}: a client did not report them, or the service was "
            f"down"
        )
    usual = _usual(earlier, "extra", 0.0)
    extra = figures["extra"]
    if extra is not None and extra > usual + MAX_CHANGE + _noise(usual, n_sessions):
        found.append(
            f"the live log has {_percent(extra)} more events of the same sessions and items, "
            f"usually {_percent(usual)}: a client may repeat events under another event_id"
        )
    return found


def _usual(earlier: Sequence[Mapping[str, Any]], name: str, at_first: float) -> float:
    values = [each[name] for each in earlier[-USUAL_OF:] if each[name] is not None]
    return float(np.median(values)) if len(values) >= MIN_USUAL else at_first


def _noise(share: float, n_sessions: int) -> float:
    """Return what chance may add to a share of events that come and go by session."""
    share = min(max(share, 0.0), 1.0)
    return DEVIATIONS * float(np.sqrt(share * (1 - share) / max(n_sessions, 1)))


def _shown(seconds: float) -> str:
    return f"{seconds / 60:.0f} minutes" if seconds >= 120 else f"{seconds:.0f} seconds"  # noqa: PLR2004


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
