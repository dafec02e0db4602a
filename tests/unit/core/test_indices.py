import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dayahead.core.indices import union

some_indices = st.lists(st.integers(0, 50)).map(lambda each: np.array(each, np.int32))


@given(first=some_indices, second=some_indices)
def test_a_union_is_that_of_numpy(first: np.ndarray, second: np.ndarray) -> None:
    found = union(first, second.astype(np.int64))
    np.testing.assert_array_equal(found, np.union1d(first, second))
    assert found.dtype == np.int32
