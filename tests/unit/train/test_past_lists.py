"""Past events before a session's own: the same flat lists, whatever each user's past is."""

import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dayahead.core.errors import WindowError
from dayahead.distributed.process import Rank
from dayahead.train.batches import Sessions

ITEMS = [[5, 6, 7], [8, 9], [2, 3, 4, 5]]
BEFORE = [[11, 12, 13], [], [14]]
PRICES = [[0.5, 0.25, 1.0], [2.0, 3.0], [4.0, 5.0, 6.0, 7.0]]
PRICES_BEFORE = [[0.1, 0.2, 0.3], [], [0.4]]

pairs = st.lists(
    st.tuples(
        st.lists(st.integers(2, 99), min_size=2, max_size=6),
        st.lists(st.integers(2, 99), max_size=6),
    ),
    min_size=1,
    max_size=12,
)


def table_of(items, before, prices=None, prices_before=None):
    columns = {
        "session_id": [f"s{place}" for place in range(len(items))],
        "item_id": pa.array(items, pa.list_(pa.int32())),
        "bef_item_id": pa.array(before, pa.list_(pa.int32())),
    }
    if prices:
        columns["price"] = pa.array(prices, pa.list_(pa.float32()))
        columns["bef_price"] = pa.array(prices_before, pa.list_(pa.float32()))
    return pa.table(columns)


def test_past_events_come_first_and_are_marked():
    table = table_of(ITEMS, BEFORE, PRICES, PRICES_BEFORE)
    sessions = Sessions.from_table(table, past_length=2)
    assert sessions.columns["item_id"].tolist() == [12, 13, 5, 6, 7, 8, 9, 14, 2, 3, 4, 5]
    assert sessions.columns["_is_past"].tolist() == [1, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0]
    prices = torch.tensor([0.2, 0.3, 0.5, 0.25, 1, 2, 3, 0.4, 4, 5, 6, 7])
    assert torch.equal(sessions.columns["price"], prices)
    assert sessions.offsets.tolist() == [0, 5, 7, 12]


def test_a_batch_has_no_hole_between_the_past_and_the_session():
    batch = Sessions.from_table(table_of(ITEMS, BEFORE), 9).gather(
        torch.tensor([1, 2, 0]), Rank(0, 1)
    )
    assert batch.columns["item_id"].tolist() == [
        [8, 9, 0, 0, 0, 0],
        [14, 2, 3, 4, 5, 0],
        [11, 12, 13, 5, 6, 7],
    ]
    assert batch.columns["_is_past"].tolist() == [[0] * 6, [1, 0, 0, 0, 0, 0], [1, 1, 1, 0, 0, 0]]
    assert batch.lengths.tolist() == [2, 5, 6]


def test_a_user_of_no_known_past_has_none():
    """A null list, as of a session whose user is not known, counts as an empty one."""
    sessions = Sessions.from_table(table_of(ITEMS, [None, [11], None]), 3)
    assert sessions.columns["item_id"].tolist() == [5, 6, 7, 11, 8, 9, 2, 3, 4, 5]


def test_past_lists_of_unequal_lengths_are_refused():
    table = table_of(ITEMS, BEFORE, PRICES, [[0.1, 0.2], [], [0.4]])
    with pytest.raises(WindowError, match=r"column price: expected 4 events.*found 3"):
        Sessions.from_table(table, 2)


@given(pairs, st.integers(1, 8))
def test_every_row_is_the_end_of_its_past_and_its_session(rows, length):
    items, before = ([row[side] for row in rows] for side in (0, 1))
    table = table_of(items, before)
    sessions = Sessions.from_table(table, length)
    found = [part.tolist() for part in sessions.columns["item_id"].split(sessions.lengths.tolist())]
    assert found == [past[-length:] + own for own, past in rows]
    assert int(sessions.columns["_is_past"].sum()) == sum(min(len(p), length) for p in before)
