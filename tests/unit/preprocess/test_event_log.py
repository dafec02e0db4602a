"""Parts of the log, read whole and in pieces, and refused where they are damaged."""

import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dayahead.core.columns import ITEM_ID, ROW, SESSION_ID
from dayahead.core.errors import DataError
from dayahead.preprocess.event_log import Piece, read_event_log, require_whole
from support.builders import dataset_config, events, write_log

LOG = events(
    [{"session_id": "s", "item_id": number, "event_time": "2026-01-01"} for number in range(30)]
)
COLUMNS = [SESSION_ID, ITEM_ID, ROW]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("log") / "events.parquet"


def read(pieces, n_rows):
    return pa.concat_tables([table for piece in pieces for table in piece.tables(COLUMNS, n_rows)])


@given(
    n_events=st.integers(0, 30),
    by_group=st.integers(1, 12),
    by_piece=st.integers(1, 20),
    at_once=st.integers(1, 9),
)
def test_pieces_of_a_part_are_the_part(path, n_events, by_group, by_piece, at_once):
    pq.write_table(LOG.slice(0, n_events), path, row_group_size=by_group)
    whole = Piece(path, {0: 100, 5: 200})
    pieces = whole.cut(by_piece)
    assert read(pieces, at_once).equals(read([whole], 1000))
    assert sum(piece.n_events for piece in pieces) == whole.n_events == n_events
    assert all(by_piece - by_group < piece.n_events for piece in pieces[:-1])
    assert all(piece.n_events < by_piece + by_group for piece in pieces)


@pytest.mark.parametrize("seed", range(20))
def test_a_flipped_bit_or_a_cut_anywhere_is_seen(tmp_path, seed):
    dice = random.Random(seed)
    write_log(tmp_path, LOG, parts=2)
    path = tmp_path / f"events-0000{seed % 2}.parquet"
    held = bytearray(path.read_bytes())
    place = dice.randrange(len(held))
    held[place] ^= 1 << dice.randrange(8)
    path.write_bytes(held[:place] if seed % 3 == 0 else held)
    with pytest.raises(DataError, match=r"dvc repro (-f )?download") as refused:
        require_whole(read_event_log(tmp_path, dataset_config()).parts)
    assert path.name in str(refused.value) or "manifest.json" in str(refused.value)
