"""Logs of random events, written in random dialects and packed in random ways."""

import csv
import gzip
import io
import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from support.archives import seven_zip_of, tar_of, zip_of

Rows = list[dict[str, Any]]
START = datetime(2019, 10, 1, tzinfo=UTC)
WORDS = ["a", "b c", "\u65e5\u672c", "x;y", "1,5", "it's", 'say "hi"', "tab\tbed", "#", "0x1F"]


def random_rows(rng: random.Random) -> Rows:
    """What the events must become: a session, an item, a time, and a price or none."""
    return [
        {
            "session": rng.choice(WORDS) + str(rng.randrange(9)),
            "item": rng.choice([0, 1, -5, 2**53, 2**63 - 1, rng.randrange(10**6)]),
            "time": START + timedelta(seconds=rng.randrange(10**6)),
            "price": rng.choice([None, 0.0, -1.5, 1234.5, 1234567.25, round(rng.random(), 6)]),
        }
        for _ in range(rng.randrange(1, 40))
    ]


def as_csv(rows: Rows, rng: random.Random, *, is_damaged: bool) -> tuple[bytes, dict[str, Any]]:
    """Write any dialect; damage is a quote before the last value of a row, which nothing closes."""
    decimal, thousands = rng.choice([(".", None), (",", None), (",", "."), (".", ",")])
    source = {
        "delimiter": rng.choice(",;\t|"),
        "quote": '"' if is_damaged else rng.choice("\"'"),
        "decimal": decimal,
        "thousands": thousands,
    }
    signs = str.maketrans({",": thousands or "", ".": decimal})
    lines = io.StringIO()
    writer = csv.writer(
        lines,
        delimiter=source["delimiter"],
        quotechar=source["quote"],
        quoting=csv.QUOTE_ALL if rng.random() < 0.5 else csv.QUOTE_MINIMAL,
        lineterminator=(end := rng.choice(["\n", "\r\n", "\r"])),
    )
    names = ["session", "item", "time", "price", "note"]
    if rng.random() < 0.3:
        source["header"] = names
    else:
        writer.writerow(names)
    start = lines.tell()
    for row in rows:
        price = "" if row["price"] is None else f"{row['price']:,.8f}".translate(signs)
        writer.writerow([row["session"], row["item"], row["time"].isoformat(), price, "n"])
    text = lines.getvalue()
    if is_damaged:
        first = text.index(end, start)
        at = first - 1 if text[first - 1] == "n" else first - 3
        text = f'{text[:at]}"n{text[first:]}'
    return rng.choice([b"", b"\xef\xbb\xbf"]) * ("header" not in source) + text.encode(), source


def as_json(rows: Rows, rng: random.Random) -> bytes:
    written = [{**row, "time": row["time"].isoformat(), "x": [{}]} for row in rows]
    is_ascii = rng.random() < 0.5
    return b"\n".join(json.dumps(row, ensure_ascii=is_ascii).encode() for row in written)


def as_parquet(rows: Rows, rng: random.Random) -> bytes:
    table = pa.Table.from_pylist(rows)
    if rng.random() < 0.5:
        table = table.set_column(0, "session", table["session"].dictionary_encode())
    out = io.BytesIO()
    pq.write_table(table, out, compression=rng.choice(["none", "zstd"]), row_group_size=7)
    return out.getvalue()


def packed(path: Path, content: bytes, rng: random.Random) -> Path:
    """Write the file as it is, compressed, or into an archive."""
    kind = rng.choice(["", ".gz", ".zip", ".7z", ".tar"])
    target = path.with_name(path.name + kind)
    pack = {"": bytes, ".gz": gzip.compress}
    archive = {".zip": zip_of, ".7z": seven_zip_of, ".tar": tar_of}
    written = pack[kind](content) if kind in pack else archive[kind]([(path.name, content)])
    target.write_bytes(written)
    return target


def as_events(rows: Rows) -> Rows:
    """What `download` must write for them."""
    names = {"session": "session_id", "item": "item_id", "time": "event_time", "price": "price"}
    return [
        {"row": number, **{names[key]: value for key, value in row.items()}}
        for number, row in enumerate(rows)
    ]
