"""Logs written in random dialects: the events are the ones written, or the damage is an error."""

import random
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from dayahead.core.errors import SourceError
from dayahead.download.stage import download
from support.dialects import as_csv, as_events, as_json, as_parquet, packed, random_rows
from support.sources import a_dataset


def check_one(folder: Path, seed: int) -> None:
    rng = random.Random(seed)
    rows = random_rows(rng)
    kind = rng.choice(["csv", "jsonl", "parquet"])
    is_damaged = kind == "csv" and len(rows) > 1 and rng.random() < 0.3
    source: dict[str, Any] = {}
    if kind == "csv":
        content, source = as_csv(rows, rng, is_damaged=is_damaged)
    else:
        content = (as_json if kind == "jsonl" else as_parquet)(rows, rng)
    path = packed(folder / f"{seed}.{kind}", content, rng)
    dataset = a_dataset(
        source={"urls": [str(path)], "format": kind, **source},
        features={"price": {"kind": "number", "column": "price"}},
    )
    if is_damaged:
        with pytest.raises(SourceError, match=r"set source\.quote to null"):
            download(dataset, "mine", folder / "raw")
        return
    download(dataset, "mine", folder / "raw")
    events = pq.read_table(folder / "raw/events-00000.parquet").to_pylist()
    assert events == as_events(rows)


@pytest.mark.long
@pytest.mark.parametrize(
    "first", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 32))]
)
def test_logs_in_any_dialect(tmp_path, monkeypatch, first):
    monkeypatch.setenv("DVC_ROOT", str(tmp_path / "root"))
    for seed in range(20 * first, 20 * (first + 1)):
        check_one(tmp_path, seed)
