"""Which columns are item, user, session, type and id of an event: by name and by statistics."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dayahead.core.columns import DAY, UNITS, IdType
from dayahead.core.errors import SourceError
from dayahead.core.ragged import Ints
from dayahead.download.ids import plain_numbers
from dayahead.inspection.finding import Finding
from dayahead.inspection.names import ACTIONS, name_score, words_of
from dayahead.inspection.table import Column, Table
from dayahead.inspection.times import NEVER

GAP = 30 * UNITS["minute"]
_MAX_TYPES = 50
_LIFT = 0.25
"""Least share of events that follow one of the same user or session, beyond chance."""
_SHARED = 0.01
"""Share of sessions with several users from which on the session is one of each user only."""
_FEW_NULLS = 0.1
"""Share of rows without a user up to which an id of user and session loses little."""
CONSTANT = 0.98
"""Share of items with one value from which on a column belongs to the item."""
_INT = r"^(0|-?[1-9]\d*)(\.0+)?$"


@dataclass
class Keys:
    """Columns by role; None: there is none."""

    item: str = ""
    user: str | None = None
    session: str | None = None
    is_of_user: bool = False
    """Whether sessions are counted for each user, so that their id is that of both."""
    event_type: str | None = None
    event_id: str | None = None
    findings: list[Finding] = field(default_factory=list)

    def used(self) -> set[str]:
        """Return the columns that have a role."""
        roles = (self.item, self.user, self.session, self.event_type, self.event_id)
        return {name for name in roles if name}

    def note(self, key: str, value: str, confidence: str, reason: str) -> None:
        """Add a finding."""
        self.findings.append(Finding(key, value, confidence, reason))  # type: ignore[arg-type]


def find_keys(table: Table, times: Ints, not_keys: set[str]) -> Keys:
    """Find the columns of each role; `not_keys` hold times.

    Raises:
        SourceError: there is no item, or neither user nor session.
    """
    keys = Keys()
    _find_event_type(table, keys)
    _find_event_id(table, keys)
    free = [name for name in table.columns if name not in keys.used()]
    owners = [name for name in free if name not in not_keys or name_score(name, "session_id")]
    _find_owners(table, times, owners, keys)
    _find_item(table, [name for name in free if name not in keys.used() | not_keys], keys)
    _check_event_type(table, keys)
    return keys


def _find_event_type(table: Table, keys: Keys) -> None:
    scores = {}
    for name, column in table.columns.items():
        is_named = name_score(name, "event_type") == 1
        kinds = ("text", "int") if is_named else ("text",)
        if 2 <= len(column.distinct) <= _MAX_TYPES and column.kind in kinds:  # noqa: PLR2004
            texts = column.distinct.to_pylist()
            actions = sum(
                bool(ACTIONS & {*words_of(text), *text.lower().split()}) for text in texts
            )
            scores[name] = name_score(name, "event_type") + 2 * actions / len(texts) - column.nulls
    best = max(scores, key=lambda name: scores[name], default=None)
    if best is None or scores[best] < 1:
        return
    keys.event_type = best
    counts = table.columns[best].counts()
    shown = ", ".join(f"{value} {n:,}" for value, n in list(counts.items())[:10])
    level = "certain" if scores[best] >= 2 else "likely"  # noqa: PLR2004
    keys.note("columns.event_type", best, level, f"{len(counts)} types: {shown}")


def _check_event_type(table: Table, keys: Keys) -> None:
    """Drop the event type if it is the same at all events of an item: it describes items."""
    if keys.event_type is None:
        return
    share = constant_share(table.columns[keys.event_type], table.columns[keys.item])
    if share > CONSTANT:
        keys.findings = [each for each in keys.findings if each.key != "columns.event_type"]
        keys.event_type = None


def _find_event_id(table: Table, keys: Keys) -> None:
    for name, column in table.columns.items():
        is_named = name_score(name, "event_id") == 1
        if is_named and column.n and len(column.distinct) > 0.9 * column.n:
            keys.event_id = name
            again = column.n - len(column.distinct)
            why = f"its name, and nearly unique: {again:,} rows repeat an id and will be dropped"
            keys.note("columns.event_id", name, "certain", why)
            return


def lift(codes: Ints, times: Ints) -> float:
    """Return the share of events close in time to one of the same value, beyond that of chance.

    Sessions and users come near 1; items, categories and countries near 0.
    """
    valid = (codes >= 0) & (times != NEVER)
    codes, times = codes[valid], times[valid]
    if len(codes) < 2:  # noqa: PLR2004
        return 0.0
    longest = min(GAP, int(np.ptp(times)) // 20)
    shuffled = np.random.default_rng(0).permutation(codes)
    return max(
        _close_share(codes, times, near) - _close_share(shuffled, times, near)
        for near in (longest, longest // 6, longest // 30)
    )


def _close_share(codes: Ints, times: Ints, near: int) -> float:
    order = np.lexsort((times, codes))
    codes, times = codes[order], times[order]
    is_close = (codes[1:] == codes[:-1]) & (np.diff(times) <= near)
    return float((np.append(is_close, False) | np.insert(is_close, 0, False)).mean())


def _find_owners(table: Table, times: Ints, free: Iterable[str], keys: Keys) -> None:
    """Find user and session.

    Raises:
        SourceError: there is neither.
    """
    scores = {}
    for name in free:
        column = table.columns[name]
        is_id = column.kind != "number" or name_score(name, "user_id") == 1  # GA4's 1234.5678
        is_owner = len(column.distinct) >= 2 and is_id and column.nulls < 0.9  # noqa: PLR2004
        others = any(name_score(name, role) for role in ("price", "title", "category", "rating"))
        if is_owner and not others:
            scores[name] = lift(column.codes, times)
    users, sessions = (
        {n: name_score(n, role) + scores[n] - table.columns[n].nulls for n in scores
         if name_score(n, role)}
        for role in ("user_id", "session_id")
    )  # fmt: skip
    keys.session = max(sessions, key=lambda name: sessions[name], default=None)
    users = {n: score for n, score in users.items() if n != keys.session}
    keys.user = max(users, key=lambda name: users[name], default=None)
    if keys.user is None and keys.session is None:
        _owner_by_statistics(table, times, scores, keys)
    else:
        _note_owners(keys, scores)
    if keys.session is not None:
        _check_session(table, times, keys)
    if keys.session is None:
        why = "no column of sessions: a user's session ends after 30 minutes without an event"
        keys.note("sessions.gap_minutes", "30", "likely", why)


def _note_owners(keys: Keys, scores: dict[str, float]) -> None:
    for key, name in (("user_id", keys.user), ("session_id", keys.session)):
        if name is not None:
            role_score = name_score(name, key)
            level = "certain" if role_score == 1 else "likely"
            why = f"its name; {max(0, scores[name]):.0%} more of its events than chance are close"
            keys.note(f"columns.{key}", name, level, f"{why} in time")


def _owner_by_statistics(table: Table, times: Ints, scores: dict[str, float], keys: Keys) -> None:
    scores = {n: s for n, s in scores.items() if not name_score(n, "item_id")}
    best = max(scores, key=lambda name: scores[name], default=None)
    if best is None or scores[best] < _LIFT:
        raise SourceError(
            f"no column holds users or sessions ({', '.join(table.columns)[:300]}): no name says "
            f"so, and no column has several events close in time. This is no log of sessions; if "
            f"it is, rename the column to user_id or session_id in source.header; if it is a table "
            f"of items, give it beside its log: dayahead inspect LOG --items FILE"
        )
    codes = table.columns[best].codes
    valid = times[times != NEVER]
    span = int(np.ptp(valid))
    is_session = span > DAY / 2 and late_share(codes, times, min(DAY, span // 4)) < 0.001  # noqa: PLR2004
    why = f"{scores[best]:.0%} more of its events than chance are close in time"
    if is_session:
        keys.session = best
        keys.note("columns.session_id", best, "likely", f"{why}, and none come back later")
    else:
        keys.user = best
        keys.note("columns.user_id", best, "likely", f"{why}, and its values come back later")


def late_share(codes: Ints, times: Ints, limit: int = DAY) -> float:
    """Return the share of events later than `limit` (a day) after the first of the same value."""
    valid = (codes >= 0) & (times != NEVER)
    codes, times = codes[valid], times[valid]
    first = np.full(int(codes.max(initial=-1)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, codes, times)
    return float((times - first[codes] > limit).mean()) if len(codes) else 0.0


def _check_session(table: Table, times: Ints, keys: Keys) -> None:
    """Find out whether sessions are unique only for each user, and whether they last for days."""
    assert keys.session is not None
    session = table.columns[keys.session]
    late = late_share(session.codes, times)
    if keys.user is not None and table.columns[keys.user].nulls < _FEW_NULLS:
        users = table.columns[keys.user].codes
        several, starts = _several(session.codes, users), _is_start(session, times)
        late_of_both = late_share(pair_codes(session.codes, users), times)
        if several > _SHARED or starts:
            keys.is_of_user, late = True, late_of_both
            keys.findings = [each for each in keys.findings if each.key != "columns.session_id"]
            why = f"{several:.1%} of its values have several users" + starts
            value = f"[{keys.user}, {keys.session}]"
            keys.note("columns.session_id", value, "certain" if several else "likely", why)
    if late > 0.2:  # noqa: PLR2004
        why = f"{late:.0%} of the events are more than a day after the start of their session"
        keys.note("columns.session_id", keys.session, "unsure", f"{why}: may be a user's id")


def pair_codes(one: Ints, other: Ints) -> Ints:
    """Return a code for each pair of codes, -1 where one is null."""
    pairs = one * (int(other.max(initial=0)) + 1) + other
    return np.where((one < 0) | (other < 0), -1, np.unique(pairs, return_inverse=True)[1])


def _several(codes: Ints, others: Ints) -> float:
    """Return the share of values that have several values of another column."""
    valid = (codes >= 0) & (others >= 0)
    pairs = np.unique(np.stack([codes[valid], others[valid]]), axis=1)
    counts = np.bincount(pairs[0])
    return float((counts > 1).sum() / max(1, (counts > 0).sum()))


def _is_start(session: Column, times: Ints) -> str:
    """Return words if the values are Unix seconds within a day before their events, as of GA4."""
    if session.kind != "int":
        return ""
    valid = (session.codes >= 0) & (times != NEVER)
    numbers = session.distinct.cast(pa.float64()).to_numpy(zero_copy_only=False)
    ages = times[valid] / 1e6 - numbers[session.codes[valid]]
    is_start = len(ages) and ((ages > -3600) & (ages < DAY / 1e6)).mean() > 0.95  # noqa: PLR2004
    return "; they are the second in which the session began, which users share" * bool(is_start)


def _find_item(table: Table, free: Iterable[str], keys: Keys) -> None:
    scores = {}
    for name in free:
        column = table.columns[name]
        if len(column.distinct) >= 2 and column.kind != "number" and column.nulls < 0.99:  # noqa: PLR2004
            scores[name] = _item_score(column, name)
    best = max(scores, key=lambda name: scores[name], default=None)
    if best is None or scores[best] <= 0:
        raise SourceError(
            f"no column holds items ({', '.join(table.columns)[:300]}): no name says so, and no "
            f"other column has repeated ids. Expected a row for each event, with its item"
        )
    keys.item = best
    column = table.columns[best]
    named = name_score(best, "item_id")
    level = "certain" if named == 1 else "likely" if best.startswith("column_") else "unsure"
    others = [name for name in scores if name != best and name_score(name, "item_id") == 1]
    why = "its name" if named else "the finest column of repeated ids"
    why += f"; {len(column.distinct):,} different in {column.n:,} rows"
    why += f"; {column.nulls:.1%} of the rows have none" if column.nulls else ""
    why += f"; others: {', '.join(others)}" if others else ""
    keys.note("columns.item_id", f"{best} ({item_type(column)})", level, why)


def _item_score(column: Column, name: str) -> float:
    if any(name_score(name, role) == 1 for role in ("price", "title", "category", "rating")):
        return 0.0
    fine = np.log(len(column.distinct)) / np.log(max(3, column.n))
    spaced = pc.mean(pc.match_substring(column.distinct, " ").cast(pa.int8())).as_py()
    is_unique = len(column.distinct) > 0.98 * column.n
    named = max(name_score(name, "item_id"), 0.6 * name_score(name, "page"))
    statistics = fine * (1 - column.nulls) * (1 - 0.5 * spaced) * (not is_unique)
    return float(2 * named * (1 - 0.5 * column.nulls) + statistics)


def item_type(column: Column) -> IdType:
    """Return int where every value is a whole number of 64 bits without leading zeros."""
    if not pc.all(pc.match_substring_regex(column.distinct, _INT)).as_py():
        return "string"
    try:
        plain_numbers(column.distinct).cast(pa.int64())
    except pa.ArrowInvalid:
        return "string"
    return "int"


def constant_share(column: Column, item: Column) -> float:
    """Return the share of the items with two events or more that have one value; 0 if too few."""
    valid = (column.codes >= 0) & (item.codes >= 0)
    items, values = item.codes[valid], column.codes[valid]
    n_events = np.bincount(items, minlength=len(item.distinct))
    pairs = np.unique(np.stack([items, values]), axis=1)
    n_values = np.bincount(pairs[0], minlength=len(item.distinct))
    several = n_events > 1
    enough = several.sum() >= 5  # noqa: PLR2004
    return float((n_values[several] == 1).mean()) if enough else 0.0
