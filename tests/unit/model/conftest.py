"""What tests of several passes of the softmax share."""

import pytest

from dayahead.model import output_layer
from support.dense_softmax import rows_of


@pytest.fixture
def chunk_rows(monkeypatch):
    """Set the number of states per chunk, of which each thread differentiates one at a time."""
    return lambda n_rows: monkeypatch.setattr(output_layer, "rows_per_chunk", rows_of(n_rows))
