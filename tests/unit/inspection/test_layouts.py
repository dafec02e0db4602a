"""How files are written: encoding, delimiter, quotes, header, compression, records, parts."""

import gzip
import json
import tarfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dayahead.core.errors import DayaheadError
from dayahead.dataset.source import SourceConfig
from dayahead.inspection.dialect import find_layout
from dayahead.inspection.log import inspect_log
from support.inspected_logs import inspected, log_lines

CSV = log_lines(header="session,item,time", row="s{visit},{item},{when:%Y-%m-%dT%H:%M:%SZ}")
SOURCE = SourceConfig(urls=("x",))


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|", "::", "||", "^"])
def test_the_delimiter_is_that_which_cuts_all_lines_alike(delimiter):
    lines = [delimiter.join(("s1", "2024-03-04 10:00:00", f"item {n}, red")) for n in range(9)]
    assert find_layout("\n".join(lines), SOURCE, "x").source.delimiter == delimiter


@pytest.mark.parametrize(
    ("title", "quote", "escape"),
    [
        ('"red, blue"', '"', None),
        ('"say ""hi"", now"', '"', None),
        ('"two\nlines"', '"', None),
        (r'"say \"hi\", now"', '"', "\\"),
        ('"Weird" Al', None, None),
        ('7" single', None, None),
        ("'red, blue'", "'", None),
        ("it's", '"', None),
    ],
)
def test_quotes_enclose_values_or_are_ordinary(title, quote, escape):
    text = "session,title,time\n" + "".join(f"s{n},{title},{1_709_510_400 + n}\n" for n in range(9))
    found = find_layout(text, SOURCE, "x").source
    assert (found.quote, found.escape, found.delimiter) == (quote, escape, ",")


@pytest.mark.parametrize(
    ("first", "has_header"),
    [
        ("session,item,time", True),
        ('"Sitzung","Artikel","Zeit"', True),
        ("alpha,beta,gamma", True),  # above numbers
        ("s0,500,2024-03-04T00:00:00Z", False),
        ("session,session,time", False),
    ],
)
def test_a_first_line_of_names_is_a_header(first, has_header):
    found = find_layout("\n".join([first, *CSV.splitlines()[1:]]), SOURCE, "x")
    assert (found.source.header is None) == has_header
    assert len(found.names) == 3
    assert has_header or found.names == ["column_1", "column_2", "column_3"]


@pytest.mark.parametrize(
    ("encoding", "setting"),
    [("utf-8", "utf-8"), ("utf-8-sig", "utf-8"), ("utf-16", "utf-8"), ("utf-16-le", "utf-16-le"),
     ("cp1252", "cp1252")],
)  # fmt: skip
def test_the_encoding_is_that_of_the_letters(tmp_path, encoding, setting):
    text = log_lines(header="sitzung;artikel;zeit", row="M\xfcller {visit};\xc4{item};{second}")
    found = inspected(tmp_path, text.encode(encoding))
    assert found.dataset.source.encoding == setting
    assert found.dataset.columns.session_id == "sitzung"


def test_compression_is_known_by_content(tmp_path):
    found = inspected(tmp_path, gzip.compress(CSV.encode()), name="log.txt")
    assert found.finding("compression").value == "gzip"
    assert found.dataset.columns.item_id.type == "int"


def test_a_list_of_events_in_each_record_is_exploded(tmp_path):
    clicks = '"clicks": [{{"sku": "a{item}", "at": {second}}}]'
    record = f'{{{{"user": {{{{"id": {{user}}}}}}, "tags": ["a"], {clicks}}}}}'
    found = inspected(tmp_path, log_lines(row=record), name="log.jsonl")
    source, columns = found.dataset.source, found.dataset.columns
    assert (source.format, source.explode) == ("jsonl", "clicks")
    assert (columns.user_id, columns.item_id.column) == ("user.id", "clicks.sku")
    assert found.finding("tags").value == "not read"


def test_an_array_of_objects_may_be_cut_by_the_sample(tmp_path, monkeypatch):
    monkeypatch.setattr("dayahead.inspection.sample.BYTES", 4000)
    rows = [json.loads(line) for line in log_lines(
        row='{{"uid": {user}, "item": {item}, "ts": {second}}}').splitlines()]  # fmt: skip
    found = inspected(tmp_path, json.dumps(rows, indent=1), name="log.json")
    assert found.dataset.columns.user_id == "uid"
    assert "about 1/" in found.found.read


def test_parquet_is_read_with_its_types(tmp_path):
    lines = [line.split(",") for line in log_lines(row="{user},{item},{second}").splitlines()]
    seconds = pa.array([int(line[2]) for line in lines]).cast(pa.timestamp("s", "UTC"))
    columns = {"user": [line[0] for line in lines], "item": [int(line[1]) for line in lines]}
    pq.write_table(pa.table({**columns, "t": seconds}), tmp_path / "log.parquet")
    found = inspected(tmp_path, (tmp_path / "log.parquet").read_bytes(), name="log.parquet")
    assert found.dataset.source.format == "parquet"
    assert (found.dataset.time.column, found.dataset.time.unit) == ("t", "text")


def nullable_records():
    """Clicks with a record and a list that are null in two of three, the first ones included."""
    lines = log_lines(row='{{"uid": "{user}", "item": {item}, "ts": {second}}}').splitlines()
    for number, line in enumerate(lines):
        has_both = number % 3 == 2
        yield json.loads(line) | {
            "geo": {"town": f"t{number % 4}", "area": {"code": 7}} if has_both else None,
            "tags": ["a", "b"] if has_both else None,
        }


def test_records_and_lists_of_json_may_be_null(tmp_path):
    text = "".join(json.dumps(row) + "\n" for row in nullable_records())
    found = inspected(tmp_path, text, name="log.jsonl")
    assert found.found.read.startswith("120 rows, ")
    names = [name for name, *_ in found.found.columns]
    assert names == ["uid", "item", "ts", "geo.town", "geo.area.code"]
    assert "unreadable" not in found.found.text


@pytest.mark.parametrize(
    ("n_records", "of_geo"), [(2000, ["geo.town", "geo.area.code"]), (2, [])]
)  # fmt: skip
def test_records_and_lists_of_parquet_may_be_null(tmp_path, monkeypatch, n_records, of_geo):
    monkeypatch.setattr("dayahead.inspection.sample.RECORDS", n_records)
    pq.write_table(pa.Table.from_pylist(list(nullable_records())), tmp_path / "log.parquet")
    found = inspected(tmp_path, (tmp_path / "log.parquet").read_bytes(), name="log.parquet")
    assert found.found.read.startswith("120 rows, ")
    assert [name for name, *_ in found.found.columns] == ["uid", "item", "ts", *of_geo]


def test_null_records_in_a_list_of_events_are_no_columns(tmp_path):
    rows = [
        {"uid": row["uid"], "ts": row["ts"], "events": [
            {"item": row["item"], "geo": row["geo"], "tags": row["tags"]}]}
        for row in nullable_records()
    ]  # fmt: skip
    found = inspected(tmp_path, "".join(json.dumps(row) + "\n" for row in rows), name="log.jsonl")
    assert found.found.read.startswith("120 rows, ")
    names = [name for name, *_ in found.found.columns]
    assert names == ["uid", "ts", "events.item", "events.geo.town", "events.geo.area.code"]


def test_a_column_of_times_without_any_is_none(tmp_path):
    rows = pa.table({"user": ["a", "b"], "item": [1, 2], "time": pa.nulls(2, pa.timestamp("us"))})
    pq.write_table(rows, tmp_path / "log.parquet")
    with pytest.raises(DayaheadError, match="no column holds times"):
        inspect_log([str(tmp_path / "log.parquet")], "mine")


def test_columns_that_differ_by_file_are_named(tmp_path):
    other = log_lines(
        header="time,item,session,page", row="{when:%Y-%m-%dT%H:%M:%SZ},{item},s{visit},/"
    )
    found = inspected(tmp_path, CSV.replace("time", "time,shop").replace("Z\n", "Z,a\n"), other)
    reasons = [each.reason for each in found.found.findings if each.key == "columns"]
    assert reasons == ["1-log.csv lacks: shop", "1-log.csv has besides: page"]
    assert found.found.read.startswith("240 rows, ")


def test_many_files_of_a_folder_are_named_by_a_glob(tmp_path):
    (tmp_path / "logs").mkdir()
    found = inspected(tmp_path / "logs", CSV, CSV, CSV, CSV)
    assert found.dataset.source.urls == (str(tmp_path / "logs" / "*.csv"),)
    assert "of 4 files" in found.found.read


def test_files_of_a_folder_that_reads_as_a_glob_are_named_one_by_one(tmp_path):
    (tmp_path / "[2024]").mkdir()
    found = inspected(tmp_path / "[2024]", CSV, CSV, CSV, CSV)
    assert len(found.dataset.source.urls) == 4


def test_a_file_url_is_written_as_its_path(tmp_path):
    (tmp_path / "log.csv").write_text(CSV)
    found = inspect_log([f"file://{tmp_path}/log.csv"], "mine", [f"file://{tmp_path}/*.csv"])
    assert f'  - "{tmp_path}/log.csv"\n' in found.text
    assert f'    - "{tmp_path}/*.csv"\n' in found.text


def test_rows_that_cannot_be_read_are_allowed_for(tmp_path):
    found = inspected(tmp_path, CSV.replace("s7,", "oops\ns7,"))
    assert 0.025 < found.dataset.quality.unreadable < 0.1
    assert "3 of 120 rows" in found.found.text


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "no file holds anything"),
        (b"\n\n", "no file holds anything"),
        (b"%PDF-1.4\n\xff\xfe\0", "is a PDF file"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1\0\0", "is an Excel workbook"),
        (b"<!doctype html><html></html>", "is a page of HTML"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\0\1\2\3", "is no text"),
        (b"Dear reader\nthis is a letter\nwith lines of words\n" * 9, "no row has the values"),
        (b"movieId,title\n1,Ran\n2,Heat\n", "no column holds times"),
        (log_lines(header="item,time", row="{item},{second}").encode(), "no column holds users"),
        (log_lines(header="user,time", row="{user},{second}").encode(), "no column holds items"),
        (b'{"user": 1, "item"', "holds no object with values"),
    ],
)  # fmt: skip
def test_what_is_no_log_is_one_error(tmp_path, content, problem):
    path = tmp_path / "log.csv"
    path.write_bytes(content)
    with pytest.raises(DayaheadError, match=problem) as caught:
        inspect_log([str(path)], "mine")
    assert "\n" not in str(caught.value)


def test_files_of_other_kinds_and_machines_are_refused(tmp_path):
    with pytest.raises(DayaheadError, match=r"expected csv as .*, found jsonl"):
        inspected(tmp_path, CSV, '{"a": 1}\n')
    with pytest.raises(DayaheadError, match="no file matches"):
        inspect_log([str(tmp_path / "*.tsv")], "mine")
    with pytest.raises(DayaheadError, match="inspect reads local files"):
        inspect_log(["memory://log.csv"], "mine")


def test_a_large_archive_is_not_read_through(tmp_path, monkeypatch):
    monkeypatch.setattr("dayahead.inspection.sample._MAX_ARCHIVE", 5000)
    with tarfile.open(tmp_path / "log.tar.gz", "w:gz") as archive:
        (tmp_path / "log.csv").write_text(CSV)
        archive.add(tmp_path / "log.csv", "log.csv")
    found = inspect_log([str(tmp_path / "log.tar.gz")], "mine")
    assert "log.tar.gz::log.csv" in found.read
    monkeypatch.setattr("dayahead.inspection.sample._MAX_ARCHIVE", 50)
    with pytest.raises(DayaheadError, match="can only be read as a whole"):
        inspect_log([str(tmp_path / "log.tar.gz")], "mine")
