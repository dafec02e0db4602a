"""The benchmarks' log: what `preprocess` takes for REES46's, and grows only at its end."""

import pyarrow.parquet as pq

from dayahead.core.columns import ROW
from dayahead.core.files import read_json
from dayahead.core.fingerprints import sha256_of
from dayahead.preprocess.event_log import read_event_log
from generated_log import Shape, rees46, write_days, write_month

SHAPE = Shape(days=3, sessions_per_day=400)


def parts_of(raw):
    return [pq.read_table(path) for path in sorted(raw.glob("*.parquet"))]


def test_it_has_the_columns_of_the_event_table(tmp_path):
    n_events = write_month(tmp_path, SHAPE)
    log = read_event_log(tmp_path, rees46())
    (table,) = parts_of(tmp_path)
    assert len(table) == n_events == sum(part.events for part in log.parts)
    schema = rees46().event_schema()
    assert {name: table.schema.field(name).type for name in schema.names} == dict(
        zip(schema.names, schema.types, strict=True)
    )


def test_a_longer_log_begins_with_the_shorter_one(tmp_path):
    write_days(tmp_path / "short", SHAPE)
    write_days(tmp_path / "long", Shape(days=4, sessions_per_day=400))
    short, long = (read_json(tmp_path / name / "manifest.json") for name in ("short", "long"))
    assert long["parts"][:3] == short["parts"]
    assert [part["sha256"] for part in short["parts"]] == [
        sha256_of(tmp_path / "short" / part["file"]) for part in short["parts"]
    ]


def test_rows_are_numbered_by_source_file(tmp_path):
    write_days(tmp_path, SHAPE)
    n_first, n_second, _ = (
        part["events"] for part in read_json(tmp_path / "manifest.json")["parts"]
    )
    parts = read_event_log(tmp_path, rees46()).parts
    assert [part.first_row for part in parts] == [0, n_first, n_first + n_second]
    assert all(part[ROW].to_pylist() == [*range(len(part))] for part in parts_of(tmp_path))
