"""Raw tables of any kind: one of our errors that says where, or just the events that are there.

A plain oracle reads the same file with Python's csv and json modules.
"""

import csv
import io
import json
import re
from dataclasses import replace
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from dayahead.core.errors import DayaheadError
from dayahead.core.files import read_json
from dayahead.dataset.schema import DatasetConfig
from dayahead.download.stage import download
from support.raw_oracle import NAMES, NULLS, BadError, Expected, expected, text, whole
from support.raw_tables import COLUMNS, cells, json_lines
from support.sources import a_dataset

slowly = settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def dataset_of(path: Path, kind: str, unit: str, unreadable: float) -> DatasetConfig:
    return a_dataset(
        source={"urls": [str(path)], "format": kind, "nulls": list(NULLS)},
        time={"unit": unit, "between": ["1970-01-01", "2199-12-31"]},
        features={"price": {"kind": "number", "column": "price"}},
        quality={
            "nulls": {"session_id": 1, "item_id": 1, "event_time": 1},
            "unreadable": unreadable,
            "multiline": None,
            "outside": None,
            "stray": None,
        },
    )


def downloaded(folder: Path, dataset: DatasetConfig) -> list[dict[str, Any]]:
    """Events as dictionaries; the manifest's account must hold."""
    raw = folder / "raw"
    download(dataset, "mine", raw)
    manifest = read_json(raw / "manifest.json")
    events = [
        row for part in manifest["parts"] for row in pq.read_table(raw / part["file"]).to_pylist()
    ]
    assert manifest["events"] == len(events)
    assert manifest["rows"] == len(events) + sum(manifest["dropped"].values())
    return events


def check(folder: Path, dataset: DatasetConfig, wanted: Expected | None, first: int) -> None:
    """Download, and hold what comes against the oracle; None: it cannot read the file either."""
    is_strict = dataset.quality.unreadable == 0
    try:
        events = downloaded(folder, dataset)
    except DayaheadError as error:
        message = str(error)
        assert "\n" not in message or "found" in message
        if wanted is None:
            event("unreadable file")
        elif wanted.faulty and is_strict:
            event("faulty row")
            numbers = {f"{number + first:,}" for number in wanted.faulty}
            assert re.search(r", (?:line|row) ([\d,]+): ", message)[1] in numbers
        elif "Set time.unit" in message:
            event("another unit")
            assert wanted.outside > len(wanted.events)
        else:
            event("no events")
            assert not wanted.events, message
            assert "no event in any" in message
        return
    assert wanted is not None or not is_strict
    if wanted is not None:
        event("events")
        assert not (wanted.faulty and is_strict)
        assert events == wanted.events


@pytest.fixture(autouse=True)
def _own_store(tmp_path, monkeypatch):
    monkeypatch.setenv("DVC_ROOT", str(tmp_path / "root"))


@pytest.fixture
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("log")


UNITS = st.sampled_from(["ms", "text"])
LIMITS = st.sampled_from([0.0, 1.0])


@pytest.mark.long
@given(st.data(), UNITS, LIMITS, st.sampled_from(["\n", "\r\n"]), st.booleans())
@slowly
def test_csv_of_any_values(folder, data, unit, unreadable, ending, quotes_all):
    rows = data.draw(st.lists(cells(unit), min_size=1, max_size=12))
    columns = data.draw(st.permutations([*range(4)]))
    out = io.StringIO()
    quotes_all |= any("\r" in cell for row in rows for cell in row)  # csv.writer would not care
    style = csv.QUOTE_ALL if quotes_all else csv.QUOTE_MINIMAL
    writer = csv.writer(out, lineterminator=ending, quoting=style)
    writer.writerow([NAMES[column] for column in columns])
    writer.writerows([row[column] for column in columns] for row in rows)
    path = folder / "log.csv"
    path.write_bytes(out.getvalue().encode())
    read = list(csv.DictReader(io.StringIO(out.getvalue(), newline="")))
    assert len(read) == len(rows)
    check(folder, dataset_of(path, "csv", unit, unreadable), expected(read, unit), first=2)


@pytest.mark.long
@given(st.data(), LIMITS)
@slowly
def test_csv_with_harm_done_to_its_bytes(folder, data, unreadable):
    rows = data.draw(st.lists(cells("ms"), min_size=1, max_size=6))
    lines = [
        ",".join(NAMES),
        *(",".join(re.sub(r'[",\r\n]', "", cell) for cell in row) for row in rows),
    ]
    content = bytearray(("\n".join(lines) + "\n").encode())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(content)))
        cut = data.draw(st.integers(0, 2))
        content[at : at + cut] = data.draw(
            st.one_of(
                st.sampled_from([b",", b"\n", b'"', b"\xff", b"", b"9", b"\x00"]),
                st.binary(max_size=2),
            )
        )
    path = folder / "log.csv"
    path.write_bytes(content)
    dataset = dataset_of(path, "csv", "ms", unreadable)
    if b'"' in content or b"\r" in content:  # Python and Arrow differ in what stray ones mean
        with_our_errors_only(folder, dataset)
    if b"\r" not in content:
        unquoted = replace(dataset, source=replace(dataset.source, quote=None))
        check(folder, unquoted, plain_csv(bytes(content)), first=2)


def with_our_errors_only(folder: Path, dataset: DatasetConfig) -> None:
    try:
        downloaded(folder, dataset)
    except DayaheadError:
        event("an error of ours")


def plain_csv(content: bytes) -> Expected | None:
    """What is in csv without quotes; None: no table."""
    lines = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    header = lines[0].split(b",")
    rows = [line.split(b",") for line in lines[1:] if line]
    if any(header.count(name.encode()) != 1 for name in NAMES):
        return None
    if any(len(row) != len(header) for row in rows):
        return None
    try:
        lines[0].decode()
    except UnicodeDecodeError:
        return None
    return expected(
        [{name: row[header.index(name.encode())] for name in NAMES} for row in rows], "ms"
    )


@pytest.mark.long
@given(json_lines(), LIMITS)
@slowly
def test_json_lines_of_any_values(folder, lines, unreadable):
    path = folder / "log.jsonl"
    path.write_bytes(b"\n".join(lines))
    dataset = dataset_of(path, "jsonl", "ms", unreadable)
    try:
        events = downloaded(folder, dataset)
    except DayaheadError:
        event("an error of ours")
        return
    event("events")
    rows = [line for line in lines if line.strip()]
    for found in events:
        wanted = expected([plain_json(rows[found["row"]])], "ms").events
        assert [{**found, "row": 0}] == wanted
    if unreadable == 0:  # none was left out, so none may be missing
        assert events == expected([plain_json(line) for line in rows], "ms").events


def plain_json(line: bytes) -> dict[str, Any]:
    entry = json.loads(line)
    return {name: entry.get(name) for name in NAMES}


@given(st.lists(st.integers(0, 99), min_size=1, max_size=8), st.data(), UNITS, LIMITS)
@slowly
def test_parquet_of_any_types(folder, numbers, data, unit, unreadable):
    columns = {name: data.draw(st.sampled_from(COLUMNS))(numbers) for name in NAMES}
    table = pa.table(columns)
    path = folder / "log.parquet"
    pq.write_table(table, path)
    try:
        events = downloaded(folder, dataset_of(path, "parquet", unit, unreadable))
    except DayaheadError as error:
        event("an error of ours")
        message = str(error)
        expected = (
            r", row \d+: column|no event in any|not readable|holds (lists|records)|Set time\.unit"
        )
        assert re.search(expected, message)
        return
    event("events")
    rows = shown(pq.read_table(path))
    for found in events:
        row = rows[found["row"]]
        if isinstance(row["session"], str | int | bytes | float) and not isinstance(
            row["session"], bool
        ):
            assert found["session_id"] == text(row["session"])
        if isinstance(row["item"], str | int | bytes | float):
            assert found["item_id"] == whole(row["item"])
        if isinstance(row["time"], date) and not isinstance(row["time"], datetime):
            assert found["event_time"].date() == row["time"]
        assert row["time"] is not BadError


def shown(table: pa.Table) -> list[dict[str, Any]]:
    """Rows, with BadError for times beyond those of Python."""
    columns = {}
    for name in table.schema.names:
        try:
            columns[name] = table[name].to_pylist()
        except OverflowError:
            columns[name] = [BadError] * len(table)
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
