"""Parts of the log are read in chunks; damaged ones are rejected."""

import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dayahead.core.columns import ITEM_ID, ROW, SESSION_ID
from dayahead.core.errors import DataError
from dayahead.preprocess.event_log import Chunk, check_parts, read_event_log
from support.builders import dataset_config, events, write_log

LOG = events(
    [{"session_id": "s", "item_id": number, "event_time": "2026-01-01"} for number in range(30)]
)
COLUMNS = [SESSION_ID, ITEM_ID, ROW]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("log") / "events.parquet"


def read(chunks, n_rows):
    return pa.concat_tables([table for chunk in chunks for table in chunk.tables(COLUMNS, n_rows)])


@pytest.mark.long
@given(
    n_events=st.integers(0, 30),
    by_group=st.integers(1, 12),
    by_chunk=st.integers(1, 20),
    at_once=st.integers(1, 9),
)
def test_chunks_of_a_part_are_the_part(path, n_events, by_group, by_chunk, at_once):
    pq.write_table(LOG.slice(0, n_events), path, row_group_size=by_group)
    whole = Chunk.of_file(path, {0: 100, 5: 200})
    chunks = whole.split(by_chunk)
    found = read(chunks, at_once)
    assert found.equals(read([whole], 1000))
    assert found[ROW].to_pylist() == [n + (100 if n < 5 else 200) for n in range(n_events)]
    assert sum(chunk.n_events for chunk in chunks) == whole.n_events == n_events
    assert all(by_chunk - by_group < chunk.n_events for chunk in chunks[:-1])
    assert all(chunk.n_events < by_chunk + by_group for chunk in chunks)


def check_log(raw):
    check_parts(raw, read_event_log(raw, dataset_config()).parts)


@pytest.mark.parametrize("seed", range(8))
def test_a_flipped_bit_or_a_truncated_file_is_detected(tmp_path, seed):
    dice = random.Random(seed)
    write_log(tmp_path, LOG, parts=2)
    path = tmp_path / f"events-0000{seed % 2}.parquet"
    held = bytearray(path.read_bytes())
    at = dice.randrange(len(held))
    held[at] ^= 1 << dice.randrange(8)
    path.write_bytes(held[:at] if seed % 3 == 0 else held)
    with pytest.raises(DataError, match=r"dvc repro (-f )?download") as raised:
        check_log(tmp_path)
    assert path.name in str(raised.value) or "manifest.json" in str(raised.value)
