"""Item ids as text."""

import pytest

from dayahead.serve.request import parse_ids


@pytest.mark.parametrize(
    ("text", "ids"),
    [("1,2", ["1", "2"]), (" 1 ,, 2 ", ["1", "2"]), ('"a,b", c', ["a,b", "c"]), ("a'b", ["a'b"])],
)
def test_ids_are_split_at_commas(text, ids):
    assert parse_ids(text) == ids
