"""Small logs in the layouts of well-known data sets, and what a human would make of each.

A shape writes the same simulated visits as its source would, and says which events they are: with
the session, or with the user alone where sessions are cut at gaps of 30 minutes.

retailrocket  visitorid and gaps, itemid; all types of events
otto          session; one event per element of `events`
ga4           user_pseudo_id and ga_session_id, which users share; events of an item only
segment       anonymousId and gaps; the product's id; messages delivered twice count once
movielens     user and gaps, movie; in both layouts
lastfm        user and gaps; the track's id; plays without one do not count
taobao        user and gaps, item
yoochoose     session, item
rees46        user_session, product_id
german_shop   Sitzung, Artikelnr; times in Berlin
"""

import csv
import io
import json
import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

Row = dict[str, Any]
START = datetime(2024, 3, 10, tzinfo=UTC)
_TYPES = ("view", "cart", "purchase")


@dataclass(frozen=True)
class Shape:
    """A log, and its events as a human would set them up."""

    path: Path
    events: list[Row]
    """session_id or none, user_id, item_id (text), event_time; in the order of the file."""
    gap_minutes: float | None = None
    holds_user: bool = False
    """Whether ids of sessions have that of the user in them, so windows have hashes."""


def visits(seed: int = 3, days: int = 6, per_day: int = 45) -> list[Row]:
    """Clicks of 70 users who come back: each with visit, user, item and its attributes."""
    rng = random.Random(seed)
    rows: list[Row] = []
    counts: dict[int, int] = {}
    for visit in range(days * per_day):
        user = 100 + rng.randrange(70)
        counts[user] = counts.get(user, 0) + 1
        time = START + timedelta(days=visit // per_day, minutes=7 * 60 + rng.randrange(15 * 60))
        begin, item = time, min(int(rng.paretovariate(0.6)), 120)
        for _ in range(rng.randint(1, 8)):
            row = {"visit": visit, "number": counts[user], "user": user, "start": begin}
            for kind in _TYPES[: 1 + (rng.random() < 0.2) + (rng.random() < 0.1)]:
                rows.append({**row, "item": 5000 + item, "type": kind, "time": time})
                time += timedelta(seconds=rng.randint(4, 60), milliseconds=rng.randrange(1000))
            item = (item + rng.choice([1, 1, 2, 7])) % 120
            time += timedelta(seconds=rng.randint(10, 300))
    return sorted(rows, key=lambda row: row["time"])


def _event(row: Row, *, session: str | None = None, user: str | None = None, item: Any = None,
           unit: timedelta = timedelta(milliseconds=1)) -> Row:  # fmt: skip
    """The event of a row; its time cut to what the file writes."""
    time = START + (row["time"] - START) // unit * unit
    return {"session_id": session, "user_id": user or str(row["user"]),
            "item_id": str(item or row["item"]), "event_time": time}  # fmt: skip


def _written(path: Path, rows: list[list[Any]], header: list[str] | None = None, *,
             delimiter: str = ",", encoding: str = "utf-8") -> Path:  # fmt: skip
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter, lineterminator="\n")
    writer.writerows([*([header] if header else []), *rows])
    path.write_bytes(text.getvalue().encode(encoding))
    return path


def _unix(row: Row, unit: timedelta) -> int:
    return (row["time"] - datetime(1970, 1, 1, tzinfo=UTC)) // unit


_SECOND, _MILLISECOND, _MICROSECOND = (
    timedelta(seconds=1), timedelta(milliseconds=1), timedelta(microseconds=1)
)  # fmt: skip


def retailrocket(folder: Path) -> Shape:
    rows = visits()
    random.Random(1).shuffle(rows)
    names = {"view": "view", "cart": "addtocart", "purchase": "transaction"}
    lines = [
        [_unix(row, _MILLISECOND), row["user"], names[row["type"]], row["item"],
         1000 + n if row["type"] == "purchase" else ""]
        for n, row in enumerate(rows)
    ]  # fmt: skip
    header = ["timestamp", "visitorid", "event", "itemid", "transactionid"]
    path = _written(folder / "events.csv", lines, header)
    return Shape(path, [_event(row) for row in rows], 30, holds_user=True)


def otto(folder: Path) -> Shape:
    names = {"view": "clicks", "cart": "carts", "purchase": "orders"}
    by_visit: dict[int, list[Row]] = {}
    for row in visits():
        by_visit.setdefault(row["visit"], []).append(row)
    records = [
        {"session": visit, "events": [
            {"aid": row["item"], "ts": _unix(row, _MILLISECOND), "type": names[row["type"]]}
            for row in rows]}
        for visit, rows in by_visit.items()
    ]  # fmt: skip
    path = folder / "train.jsonl"
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    found = [_event(row, session=str(visit)) for visit, rows in by_visit.items() for row in rows]
    return Shape(path, found)


def ga4(folder: Path) -> Shape:
    names = {"view": "view_item", "cart": "add_to_cart", "purchase": "purchase"}
    lines, found, shared = [], [], START + timedelta(hours=9)
    for n, row in enumerate(visits()):
        start = shared if row["visit"] % 45 < 3 else row["start"]
        start += timedelta(days=row["visit"] // 45) if start is shared else timedelta(0)
        begin = int(start.timestamp())
        user = f"{row['user'] * 7919}.{row['user'] * 104_729}"
        record = {
            "event_date": f"{row['time']:%Y%m%d}",
            "event_timestamp": str(_unix(row, _MICROSECOND)),
            "event_name": names[row["type"]],
            "user_pseudo_id": user,
            "ga_session_id": begin,
            "ga_session_number": row["number"],
            "page_location": f"https://shop.example/p/{row['item']}?n={n}",
            "item_id": f"SKU_{row['item']}",
            "item_category": f"c{row['item'] % 9}",
            "price": row["item"] % 90 + 0.99,
            "country": ["DE", "FR", "US"][row["user"] % 3],
        }
        if start.date() != row["time"].date() or not (
            timedelta(0) <= row["time"] - start < timedelta(hours=20)
        ):
            record["ga_session_id"] = begin = int(row["start"].timestamp())
        lines.append(record)
        found.append(_event(row, session=f"{user}:{begin}", user=user, item=f"SKU_{row['item']}",
                            unit=_MICROSECOND))  # fmt: skip
        if n % 5 == 0:
            none = {"event_name": "user_engagement", "item_id": None, "item_category": None}
            lines.append({**record, **none, "price": None})
    path = folder / "bq-export.jsonl"
    path.write_text("".join(f"{json.dumps(record)}\n" for record in lines))
    return Shape(path, found, holds_user=True)


def segment(folder: Path) -> Shape:
    rng = random.Random(4)
    names = {"view": "Product Viewed", "cart": "Product Added", "purchase": "Order Completed"}
    lines, found = [], []
    for n, row in enumerate(visits()):
        anonymous = str(uuid.UUID(int=row["user"] * 2**80))
        record = {
            "messageId": f"ajs-{rng.randrange(10**12):x}-{n}",
            "anonymousId": anonymous,
            "userId": f"user-{row['user']}" if row["user"] % 3 == 0 else None,
            "type": "track",
            "event": names[row["type"]],
            "properties": {
                "product_id": f"p{row['item']:06}",
                "category": f"c{row['item'] % 9}",
                "price": row["item"] % 90 + 0.5,
            },
            "context": {"library": {"name": "analytics.js"}, "ip": f"10.0.0.{row['user'] % 250}"},
            "receivedAt": f"{row['time'] + timedelta(seconds=2):%Y-%m-%dT%H:%M:%S}.000Z",
            "timestamp": f"{row['time'].isoformat(timespec='milliseconds')[:-6]}Z",
        }
        lines += [record] * (2 if rng.random() < 0.02 else 1)
        found.append(_event(row, user=anonymous, item=f"p{row['item']:06}"))
        if n % 20 == 0:
            page = {"messageId": f"page-{n}", "event": "Page Viewed", "properties": {"path": "/"}}
            lines.append({**record, **page})
    path = folder / "segment.jsonl"
    path.write_text("".join(f"{json.dumps(record)}\n" for record in lines))
    return Shape(path, found, 30, holds_user=True)


def _by_user(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: row["user"])


def _rated() -> list[Row]:
    """Each user rates an item once."""
    first = {(row["user"], row["item"]): row for row in reversed(visits())}
    return _by_user(sorted(first.values(), key=lambda row: row["time"]))


def movielens_dat(folder: Path) -> Shape:
    rows, path = _rated(), folder / "ratings.dat"
    lines = [
        f"{row['user']}::{row['item']}::{row['item'] % 5 + 1}::{_unix(row, _SECOND)}"
        for row in rows
    ]
    path.write_text("\n".join(lines) + "\n")
    return Shape(path, [_event(row, unit=_SECOND) for row in rows], 30, holds_user=True)


def movielens_csv(folder: Path) -> Shape:
    rows = _rated()
    lines = [[row["user"], row["item"], row["item"] % 9 / 2 + 0.5, _unix(row, _SECOND)]
             for row in rows]  # fmt: skip
    path = _written(folder / "ratings.csv", lines, ["userId", "movieId", "rating", "timestamp"])
    return Shape(path, [_event(row, unit=_SECOND) for row in rows], 30, holds_user=True)


def lastfm(folder: Path) -> Shape:
    lines, found = [], []
    for row in _by_user(list(reversed(visits()))):  # the latest first, as there
        item, user = row["item"], f"user_{row['user']:06}"
        track = str(uuid.UUID(int=item * 2**90)) if item % 12 else ""
        artist = item % 30
        title = ['"Heroes"', f'Song {item // 2} (12" Mix)', f"Song {item // 2}"][item % 3]
        band = f'"Weird" Band {artist}' if artist % 7 == 0 else f"Band {artist}"
        time = f"{row['time']:%Y-%m-%dT%H:%M:%SZ}"
        lines.append([user, time, str(uuid.UUID(int=artist * 2**95 + 1)), band, track, title])
        if track:
            found.append(_event(row, user=user, item=track, unit=_SECOND))
    path = folder / "userid-timestamp-artid-artname-traid-traname.tsv"
    path.write_text("".join("\t".join(line) + "\n" for line in lines))
    return Shape(path, found, 30, holds_user=True)


def taobao(folder: Path) -> Shape:
    names = {"view": "pv", "cart": "cart", "purchase": "buy"}
    rows = _by_user(visits())
    lines = [
        [row["user"], row["item"], 300 + row["item"] % 11, names[row["type"]], _unix(row, _SECOND)]
        for row in rows
    ]
    path = _written(folder / "UserBehavior.csv", lines)
    return Shape(path, [_event(row, unit=_SECOND) for row in rows], 30, holds_user=True)


def yoochoose(folder: Path) -> Shape:
    rows = sorted(visits(), key=lambda row: row["visit"])
    lines = [
        [row["visit"] + 1, f"{row['time'].isoformat(timespec='milliseconds')[:-6]}Z",
         row["item"] + 214_000_000, row["item"] % 4]
        for row in rows
    ]  # fmt: skip
    path = _written(folder / "yoochoose-clicks.dat", lines)
    found = [_event(row, session=str(row["visit"] + 1), item=row["item"] + 214_000_000)
             for row in rows]  # fmt: skip
    return Shape(path, found)


def rees46(folder: Path) -> Shape:
    lines, found = [], []
    for row in visits():
        session, item = str(uuid.UUID(int=row["visit"] * 2**70 + 9)), row["item"]
        category = 2_053_013_555_631_882_655 + item % 13
        code = ["", "electronics.smartphone", "furniture.bed"][item % 3]
        lines.append([f"{row['time']:%Y-%m-%d %H:%M:%S} UTC", row["type"], item, category, code,
                      ["", "acme", "bolt"][item % 3], f"{item % 90 + 0.99:.2f}",
                      541_000_000 + row["user"], session])  # fmt: skip
        user = str(541_000_000 + row["user"])
        found.append(_event(row, session=session, user=user, unit=_SECOND))
    header = ["event_time", "event_type", "product_id", "category_id", "category_code", "brand",
              "price", "user_id", "user_session"]  # fmt: skip
    return Shape(_written(folder / "2019-Oct.csv", lines, header), found)


def german_shop(folder: Path) -> Shape:
    names = {"view": "Ansicht", "cart": "Warenkorb", "purchase": "Kauf"}
    berlin, lines, found = ZoneInfo("Europe/Berlin"), [], []
    for row in visits():
        price = f"{row['item'] * 0.35:,.2f}".translate(str.maketrans(",.", ".,"))
        lines.append([f"{row['time'].astimezone(berlin):%d.%m.%Y %H:%M:%S}", row["user"],
                      f"S{row['visit']}", f"0{row['item']}", f"K\xfcche {row['item'] % 8}", price,
                      names[row["type"]]])  # fmt: skip
        found.append(_event(row, session=f"S{row['visit']}", item=f"0{row['item']}", unit=_SECOND))
    header = ["Zeitpunkt", "Kundennr", "Sitzung", "Artikelnr", "Kategorie", "Preis", "Aktion"]
    path = folder / "klicks.csv"
    return Shape(_written(path, lines, header, delimiter=";", encoding="cp1252"), found)


SHAPES: dict[str, Callable[[Path], Shape]] = {
    shape.__name__: shape
    for shape in (retailrocket, otto, ga4, segment, movielens_dat, movielens_csv, lastfm, taobao,
                  yoochoose, rees46, german_shop)
}  # fmt: skip
