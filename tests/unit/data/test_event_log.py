"""Parts of the log, read whole and in pieces."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import events
from dayahead.columns import ITEM_ID, ROW, SESSION_ID
from dayahead.data.event_log import Piece

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
