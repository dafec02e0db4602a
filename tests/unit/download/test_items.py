"""The table of items: read as a log is, checked as a whole, listed in the manifest."""

import json
import logging

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dayahead.core.errors import SourceError, UnreachableError
from dayahead.core.files import read_json
from dayahead.dataset.manifest import RawManifest
from dayahead.download.stage import download
from support.sources import a_dataset

LOG = "session,item,time\na,1,2026-01-01 10:00\na,2,2026-01-01 10:01\n"
ITEMS = {
    "item_id": {"column": "sku", "type": "int"},
    "time": {"column": "since"},
    "features": {
        "brand": {"kind": "categorical", "column": "brand"},
        "price": {"kind": "log_number", "column": "price"},
    },
}
CSV = "sku,since,brand,price\n1,2026-01-01 08:00,acme,1.5\n2,2026-01-02 08:00,,\n"


def shop(folder, *files, ending="csv", log=LOG, quality=None, **items):
    """A data set with this table of items, in files items-0, items-1 ..."""
    (folder / "log.csv").write_text(log)
    for number, content in enumerate(files):
        path = folder / f"items-{number}.{ending}"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    source = {"urls": [f"{folder}/items-*.{ending}"], **items.pop("source", {})}
    section = {**ITEMS, "source": source, **items}
    section = {name: value for name, value in section.items() if value is not None}
    quality = {"unreadable": 0, **(quality or {})}
    return a_dataset(source={"urls": [f"{folder}/log.csv"]}, quality=quality, items=section)


def items_of(folder, *files, **options):
    raw = folder / "data" / "raw"
    download(shop(folder, *files, **options), "mine", raw)
    parts = [pq.read_table(path) for path in sorted(raw.glob("items-*.parquet"))]
    return [row for part in parts for row in part.to_pylist()], RawManifest.read(raw)


def test_rows_of_the_table(tmp_path):
    rows, manifest = items_of(tmp_path, CSV, CSV.replace("1,2026-01-01", "3,2026-01-03"))
    first, second = ("acme", 1.5, 0), (None, None, 1)
    assert [tuple(row[name] for name in ("brand", "price", "row")) for row in rows] == [
        *(first, second),
        *(first, second),
    ]
    assert [(row["item_id"], row["event_time"].day, row["event_time"].hour) for row in rows] == [
        *((1, 1, 8), (2, 2, 8)),
        *((3, 3, 8), (2, 2, 8)),
    ]
    items = manifest.items
    assert (items.rows, items.dropped, len(items.files)) == (4, {}, 2)
    assert [part.file for part in items.parts] == ["items-00000.parquet", "items-00001.parquet"]
    assert [part.first_row for part in items.parts] == [0, 2]
    assert len(manifest.parts) == 1


def test_a_log_without_a_table_has_no_word_of_items(tmp_path):
    (tmp_path / "log.csv").write_text(LOG)
    raw = tmp_path / "data" / "raw"
    download(a_dataset(source={"urls": [f"{tmp_path}/log.csv"]}), "mine", raw)
    assert {path.name for path in raw.iterdir()} == {
        "events-00000.parquet",
        "manifest.json",
        "quality.md",
    }
    assert "items" not in read_json(raw / "manifest.json")
    assert "## Items" not in (raw / "quality.md").read_text()


def test_rows_of_one_item_and_time_are_counted(tmp_path):
    again = CSV + "1,2026-01-01 08:00,bolt,2\n"
    rows, manifest = items_of(tmp_path, CSV, again)
    assert len(rows) == 5
    found = {each.check: each for each in manifest.items.quality}
    assert (found["replaced"].found, found["replaced"].of) == (3, 5)
    assert [each.rpartition("/")[2] for each in found["replaced"].examples] == [
        "items-0.csv, line 2",
        "items-0.csv, line 3",
        "items-1.csv, line 2",
    ]
    report = (tmp_path / "data/raw/quality.md").read_text()
    assert "| replaced" in report.partition("## Items")[2]


def test_without_times_the_rows_of_an_item_are_counted(tmp_path):
    rows, manifest = items_of(tmp_path, CSV + "1,,bolt,2\n", time=None)
    assert set(rows[0]) == {"item_id", "row", "brand", "price"}
    found = {each.check: each.found for each in manifest.items.quality}
    assert found["replaced"] == 1
    assert manifest.items.parts[0].first_event == ""


def test_text_joins_its_columns(tmp_path):
    text = {"words": {"kind": "text", "columns": ["title", "brand"]}}
    csv = "sku,since,brand,price,title\n1,2026-01-01,acme,,Red shoe\n"
    csv += "2,2026-01-01,,,\n3,2026-01-01,b,,"
    rows, _ = items_of(tmp_path, csv, vectors=text)
    assert [row["words"] for row in rows] == ["Red shoe acme", None, "b"]


def test_availability_is_read_like_the_time(tmp_path):
    csv = "sku,since,brand,price,from,to\n1,0,a,1,1767225600,99999999999999\n2,86400,b,2,,\n"
    rows, _ = items_of(
        tmp_path,
        csv,
        time={"column": "since", "unit": "s", "between": ["1970-01-01", "2100-01-01"]},
        available_from="from",
        available_until="to",
    )
    assert [row["available_from"] and row["available_from"].isoformat() for row in rows] == [
        "2026-01-01T00:00:00+00:00",
        None,
    ]
    assert rows[0]["available_until"].year > 2200
    assert rows[1]["available_until"] is None


LIMITS = {"available_from": "from", "available_until": "to"}


def limits_of(tmp_path, *rows, **options):
    """(available_from, available_until) of each row, and the manifest."""
    since = options.pop("since", "2026-01-01")
    lines = [f"{number},{since},a,1,{row}" for number, row in enumerate(rows)]
    csv = "\n".join(["sku,since,brand,price,from,to", *lines])
    found, manifest = items_of(tmp_path, csv, **LIMITS, **options)
    shown = [[found_row[name] and f"{found_row[name]:%Y-%m-%d %H}"
              for name in ("available_from", "available_until")]
             for found_row in found]  # fmt: skip
    return shown, {each.check: each for each in manifest.items.quality}


def test_availability_may_lack_the_clock_of_the_format(tmp_path):
    time = {"column": "since", "format": "%d.%m.%Y %H:%M", "zone": "Europe/Berlin"}
    rows = "01.02.2026,", "02.02.2026 12:00,03.07.2026", ",00.00.0000"
    source = {"nulls": ["", "00.00.0000"]}
    found, _ = limits_of(tmp_path, *rows, since="01.01.2026 10:00", time=time, source=source)
    assert found == [
        ["2026-01-31 23", None],
        ["2026-02-02 11", "2026-07-02 22"],
        [None, None],
    ]


def test_items_that_are_never_available_are_counted_and_said(tmp_path, caplog):
    rows = "2026-03-01,2026-02-01", "2026-03-01,2026-03-01", ",2026-03-01", "2026-03-01,", ","
    with caplog.at_level(logging.WARNING):
        _, checks = limits_of(tmp_path, *rows, ",1970-01-01", "2026-03-01,2026-03-02")
    check = checks["never_available"]
    assert (check.found, check.of) == (3, 7)
    assert [each[-6:] for each in check.examples] == ["line 2", "line 3", "line 7"]
    assert "43 % of the rows of the table of items (3) are available until" in caplog.text
    assert "items.available_until in datasets/mine.yaml" in caplog.text
    assert "never_available" in (tmp_path / "data/raw/quality.md").read_text()


def test_without_an_end_nothing_is_never_available(tmp_path):
    csv = "sku,since,brand,price,from\n1,2026-01-01,a,1,2026-02-01\n"
    _, manifest = items_of(tmp_path, csv, available_from="from")
    assert "never_available" not in {each.check for each in manifest.items.quality}


VECTOR = {"image": {"kind": "vector", "column": "pixels"}}
VECTORS = [[0.25, -1.0], None, [3.0, 4.0]]


def as_csv(vectors):
    cells = ["" if each is None else json.dumps(each) for each in vectors]
    return "sku;since;brand;price;pixels\n" + "".join(
        f"{n};2026-01-01;a;1;{cell}\n" for n, cell in enumerate(cells)
    )


def as_jsonl(vectors):
    rows = [{"sku": n, "since": "2026-01-01", "brand": "a", "price": 1, "pixels": each}
            for n, each in enumerate(vectors)]  # fmt: skip
    return "\n".join(map(json.dumps, rows))


def as_parquet(vectors):
    sink = pa.BufferOutputStream()
    columns = {"sku": range(len(vectors)), "since": ["2026-01-01"] * len(vectors)}
    columns |= {"brand": ["a"] * len(vectors), "price": [1] * len(vectors), "pixels": vectors}
    pq.write_table(pa.table({name: pa.array(each) for name, each in columns.items()}), sink)
    return sink.getvalue().to_pybytes()


FORMATS = {
    "csv": (as_csv, {"delimiter": ";"}),
    "jsonl": (as_jsonl, {"format": "jsonl"}),
    "parquet": (as_parquet, {"format": "parquet"}),
}


@pytest.mark.parametrize("ending", FORMATS)
def test_vectors_of_all_formats(tmp_path, ending):
    write, source = FORMATS[ending]
    content = write(VECTORS)
    rows, _ = items_of(tmp_path, content, ending=ending, source=source, vectors=VECTOR)
    assert [row["image"] for row in rows] == VECTORS


def test_json_of_mixed_kinds_is_read_value_by_value(tmp_path):
    content = as_jsonl([[1, 2.5], "[3, 4]", None, []])
    rows, _ = items_of(
        tmp_path, content, ending="jsonl", source={"format": "jsonl"}, vectors=VECTOR
    )
    assert [row["image"] for row in rows] == [[1, 2.5], [3, 4], None, None]


def test_vectors_of_other_lengths_are_named(tmp_path):
    files = as_csv(VECTORS), as_csv([None, [1.0, 2.0], [1.0, 2.0, 3.0]])
    message = r"section items: .*items-1\.csv, line 4: vectors\.image: expected 2 numbers, as in "
    with pytest.raises(SourceError, match=rf"{message}.*, found 3\. Give all"):
        items_of(tmp_path, *files, source={"delimiter": ";"}, vectors=VECTOR)


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_what_is_no_vector_is_named_or_counted(tmp_path, ending):
    write, source = FORMATS[ending]
    content = write([[1.0, 2.0], "1 2", [3.0, None], [3.0, 4.0]])
    message = r"section items: .*, line [23]: column pixels: expected a list of finite numbers"
    with pytest.raises(SourceError, match=rf"{message} such as \[0\.25, -1\], found '\"?1 2"):
        items_of(tmp_path, content, ending=ending, source=source, vectors=VECTOR)
    rows, manifest = items_of(
        tmp_path,
        content,
        ending=ending,
        source=source,
        vectors=VECTOR,
        quality={"unreadable": 0.5},
    )
    assert [row["image"] for row in rows] == [[1.0, 2.0], [3.0, 4.0]]
    assert manifest.items.dropped == {"unreadable": 2}


@pytest.mark.parametrize(
    ("csv", "options", "message"),
    [
        ("sku,since,price\n1,2026-01-01,2\n", {}, r"section items: .*items-0\.csv: no column b"),
        (CSV.replace("1.5", "dear"), {}, r"section items: .*line 2: column price: expected a n"),
        (CSV.replace("2026-01-01 08:00", "soon"), {}, r"section items: .*column since: expected t"),
        ("sku,since,brand,price\n", {}, r"section items: no item in items-0\.csv, which have no r"),
        (CSV.replace("1.5", '"1,5"'), {}, r"found '1,5'; set source\.decimal: ','\. "),
        (CSV.replace("1.5", '"1.061,7"'), {}, r"decimal: ',' and source\.thousands: '\.'\. "),
        (CSV.replace("1.5", '"1,061"'), {}, r"set source\.decimal: ',', or source\.thousands: ','"),
        (CSV.replace("2026", "1926"), {"quality": {"outside": 1}},
         r"no item in 2 rows, left out by items\.time\.between: 2"),
        (CSV.replace("2026-01-01", "1926-01-01"), {},
         r"defects in the table of items: outside: 50\.00% .*raise quality\.outside there"),
        (CSV, {"quality": {"nulls": {"brand": 0.1}}}, r"table of items: nulls\.brand: 50\.0"),
        (CSV.replace("2,2026", ",2026"), {}, r"table of items: nulls\.item_id: 50\.00% of 2 rows"),
        (CSV, {"time": {"column": "since", "unit": "s"}}, r"section items: .*column since: exp"),
    ],
)  # fmt: skip
def test_errors_name_the_section(tmp_path, csv, options, message):
    with pytest.raises(SourceError, match=message):
        items_of(tmp_path, csv, **options)
    assert not (tmp_path / "data" / "raw").exists()


def test_a_table_that_is_not_there_is_named_before_the_log_is_converted(tmp_path):
    dataset = shop(tmp_path, log="session,item,time\nthis is no log")
    with pytest.raises(UnreachableError, match=r"section items: .*items-\*\.csv: no file matches"):
        download(dataset, "mine", tmp_path / "data" / "raw")


def test_lists_of_one_size_of_a_database_may_be_null(tmp_path):
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect(str(tmp_path / "shop.db")) as base:
        base.execute(
            "CREATE TABLE items AS SELECT * FROM (VALUES"
            " (1, TIMESTAMP '2026-01-01 08:00', 'a', 2.5, NULL, DATE 'infinity'),"
            " (2, TIMESTAMP '2026-01-01 09:00', 'b', 2.5, [1.0, 2.0]::FLOAT[2], NULL))"
            " AS t(sku, since, brand, price, pixels, bis)"
        )
    source = {"urls": [f"duckdb://{tmp_path}/shop.db"], "format": "sql", "query": "FROM items"}
    rows, _ = items_of(tmp_path, source=source, vectors=VECTOR, available_until="bis")
    assert [row["image"] for row in rows] == [None, [1.0, 2.0]]
    assert rows[0]["available_until"].year > 2200


def test_parquet_that_arrow_cannot_read_names_the_cure(tmp_path):
    table = pq.read_table(pa.BufferReader(as_parquet([None, [1.0, 2.0]])))
    pixels = table["pixels"].cast(pa.list_(pa.float32(), 2))
    sink = pa.BufferOutputStream()
    pq.write_table(table.set_column(4, "pixels", pixels), sink)
    with pytest.raises(SourceError, match="write them as lists of any size"):
        items_of(
            tmp_path, sink.getvalue().to_pybytes(), ending="parquet",
            source={"format": "parquet"}, vectors=VECTOR,
        )  # fmt: skip


def test_limits_on_the_order_of_the_log_do_not_hold_for_the_table(tmp_path):
    csv = "sku,since,brand,price\n1,2026-01-02,a,1\n2,2026-01-01,a,1\n"
    rows, _ = items_of(tmp_path, csv, quality={"backwards": 0})
    assert len(rows) == 2


def test_large_losses_are_said(tmp_path, caplog):
    csv = CSV + "3,2026-01-01,a,1\n,2026-01-01,a,1\n"
    with caplog.at_level(logging.WARNING):
        items_of(tmp_path, csv, quality={"nulls": {"item_id": 1}})
    assert "25 % of the rows of the table of items (1) were dropped by items.item_id" in caplog.text
