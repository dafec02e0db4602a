"""One small log as a CSV file and as tables of warehouses, and what `download` makes of them."""

import csv
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.parquet as pq

from dayahead.core.files import read_json
from dayahead.download.stage import download
from support.sources import a_dataset

START = datetime(2026, 3, 1, 22, tzinfo=UTC)
FEATURES = {"price": {"kind": "number", "column": "price"}}


def a_log():
    """Rows of two days, some of equal time, some without a price, none in the order of time."""
    rows = [
        {
            "session": f"s{n % 7}",
            "item": n % 11 + 1,
            "time": START + timedelta(minutes=n * 37 % 120 // 4 * 10),
            "price": None if n % 5 == 0 else n / 4,
            "seq": 1000 - n,
        }
        for n in range(60)
    ]
    return pa.Table.from_pylist(rows).cast(
        pa.schema(
            [
                *(("session", pa.string()), ("item", pa.int64())),
                *(("time", pa.timestamp("us", "UTC")), ("price", pa.float64())),
                ("seq", pa.int64()),
            ]
        )
    )


def table_dataset(url, kind="sql", **source):
    """Return a data set of one table."""
    if kind == "sql":
        source = {"query": "SELECT * FROM clicks", **source}
    return a_dataset(source={"urls": [str(url)], "format": kind, **source}, features=FEATURES)


def downloaded(dataset, folder):
    """Return the events, without their row within a file, and the manifest."""
    download(dataset, "mine", folder)
    manifest = read_json(folder / "manifest.json")
    parts = [pq.read_table(folder / part["file"]) for part in manifest["parts"]]
    return pa.concat_tables(parts).drop_columns(["row"]).to_pylist(), manifest


def of_csv(table, folder, order=()):
    """Return the events of the same rows as a CSV file, in order of time and of these columns."""
    rows = table.to_pylist()

    def key(row):
        values = [row[name] for name in (*order, "session", "item", "time", "price")]
        return row["time"], [(value is None, value or 0) for value in values]

    path = folder / "log.csv"
    with path.open("w", newline="") as file:
        out = csv.DictWriter(file, table.column_names)
        out.writeheader()
        out.writerows(sorted(rows, key=key))
    dataset = a_dataset(source={"urls": [str(path)]}, features=FEATURES)
    return downloaded(dataset, folder / "of-csv")[0]
