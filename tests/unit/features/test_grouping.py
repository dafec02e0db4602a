"""GroupSessions and SliceLists: what NVTabular's own operators give, on any pandas frame."""

import numpy as np
import nvtabular as nvt
import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from merlin.core.utils import Serial
from merlin.dag import ColumnSelector
from merlin.io import Dataset
from nvtabular.ops import Groupby, ListSlice

from dayahead.features.grouping import GroupSessions, SliceLists

REDUCTIONS = ["count", "nunique", "sum", "mean", "var", "std", "min", "max"]


def lists(frame):
    """A frame as Python values, null as None, by column."""

    def plain(value):
        if isinstance(value, list | np.ndarray):
            return [plain(element) for element in value]
        return None if pd.isna(value) else value

    return {name: [plain(value) for value in frame[name]] for name in sorted(frame)}


def transformed(operator, frame, columns=None):
    return operator.transform(ColumnSelector(columns or list(frame)), frame)


def column(values):
    return st.lists(values, min_size=30, max_size=30)


@st.composite
def frames(draw):
    n = draw(st.integers(1, 30))
    small = st.integers(0, 3)
    frame = pd.DataFrame(
        {
            "user": draw(column(st.sampled_from(["a", "b", None]))),
            "session": draw(column(small)),
            "big": np.array(draw(column(st.sampled_from([-(2**63), -7, 2**63 - 1])))),
            "visit": pd.array(draw(column(st.none() | small)), dtype="Int64"),
            "time": draw(column(small | st.just(np.nan))),
            "row": draw(st.permutations(range(30))),
            "price": np.array(draw(column(st.sampled_from([0.5, 2.0, np.nan]))), np.float32),
            "item": np.array(draw(column(st.integers(-5, 5))), np.int32),
            "brand": draw(column(st.sampled_from(["x", "yy", None]))),
            "when": pd.to_datetime(draw(column(small)), unit="D"),
        }
    )
    return frame.iloc[:n]


@settings(max_examples=30)
@given(
    frames(),
    st.sampled_from(
        [["session"], ["visit"], ["big", "session"], ["user", "session"], ["visit", "user", "when"]]
    ),
    st.sampled_from([["row"], ["time", "row"], ["brand", "row"], ["when", "row"]]),
    st.booleans(),
)
def test_groups_are_those_of_nvtabular(frame, keys, sort_cols, ascending):
    aggs = {
        "item": ["list", "first", "last", *REDUCTIONS],
        "price": ["list", *REDUCTIONS],
        "brand": ["list", "last", "count"],
        "row": ["first", "last"],
        "time": "list",
    }
    if frame[keys].dropna().empty:
        return  # NVTabular itself fails
    rules = {"aggs": aggs, "sort_cols": sort_cols, "ascending": ascending}
    ours = transformed(GroupSessions(keys, **rules), frame)
    theirs = transformed(Groupby(keys, **rules), frame)
    # Our sums and deviations are added up in another order than theirs.
    rounded = [name for name in theirs if name.split("_")[-1] in ("mean", "var", "std")]
    np.testing.assert_allclose(ours[rounded], theirs[rounded], rtol=1e-6)
    assert lists(ours.drop(columns=rounded)) == lists(theirs.drop(columns=rounded))
    reduced = [name for name in ours if name.split("_")[-1] in REDUCTIONS]
    assert [ours[name].dtype for name in reduced] == [theirs[name].dtype for name in reduced]


def test_the_shape_of_the_frame_changes_nothing():
    frame = pd.DataFrame({"s": [2, 1, 2], "t": [5, 6, 4], "x": [1.0, 2.0, np.nan]}, index=[7, 7, 9])
    for part, expected in [
        (frame, {"s": [1, 2], "x_list": [[2.0], [None, 1.0]]}),
        (frame.iloc[:1], {"s": [2], "x_list": [[1.0]]}),
        (frame.iloc[:0], {"s": [], "x_list": []}),
        (frame.assign(s=[np.nan, 1, np.nan]), {"s": [1], "x_list": [[2.0]]}),
        (frame.assign(s=np.nan), {"s": [], "x_list": []}),
    ]:
        grouped = transformed(GroupSessions("s", sort_cols="t", aggs={"x": "list"}), part)
        assert lists(grouped) == expected
        assert len(repr(grouped))  # pandas 1.5 alone cannot print such lists


def test_small_integers_group_beyond_their_range():
    frame = pd.DataFrame({"s": np.arange(-128, 128).astype(np.int8).repeat(2), "x": np.arange(512)})
    grouped = transformed(GroupSessions("s", aggs={"x": "list"}), frame)
    assert grouped["s"].tolist() == list(range(-128, 128))
    assert grouped["x_list"].tolist()[-1] == [510, 511]


@pytest.mark.parametrize("aggs", [{"x": "median"}, {"x": [max, "list"]}, {"mixed": "list"}])
def test_what_arrow_cannot_do_is_nvtabulars(aggs):
    frame = pd.DataFrame({"s": [2, 1, 2], "x": [1.0, 2.0, 5.0], "mixed": [1, "a", 2.0]})
    ours = transformed(GroupSessions("s", aggs=aggs), frame)
    assert lists(ours) == lists(transformed(Groupby("s", aggs=aggs), frame))


@given(
    st.lists(st.lists(st.integers(0, 9) | st.none(), max_size=6), min_size=1, max_size=6),
    st.integers(-7, 7),
    st.none() | st.integers(-7, 7),
    st.booleans(),
)
def test_slices_are_those_of_nvtabular(values, start, end, is_arrow):
    frame = pd.DataFrame({"x": values})
    theirs = transformed(ListSlice(start, end), frame)
    if is_arrow:
        frame = transformed(SliceLists(0), frame)  # all of them
    assert lists(transformed(SliceLists(start, end), frame)) == lists(theirs)


def test_padding_is_nvtabulars():
    frame = pd.DataFrame({"s": [1, 1, 2], "x": [3, 4, 5]})
    grouped = transformed(GroupSessions("s"), frame)
    assert lists(transformed(SliceLists(2, pad=True), grouped, ["x_list"])) == {
        "x_list": [[3, 4], [5, 0]]
    }


@pytest.fixture
def _no_cluster():
    """Merlin would take the one that other tests share; two threads of a worker lock each other."""
    with Serial():
        yield


@pytest.mark.usefixtures("_no_cluster")
def test_a_workflow_fits_transforms_and_writes_them(tmp_path):
    frame = pd.DataFrame(
        {"s": np.arange(90) // 3, "t": np.arange(90)[::-1], "i": np.arange(90, dtype=np.int32)}
    )

    def workflow(groupby, list_slice):
        grouped = ["s", "t", "i"] >> groupby(["s"], ["t"], {"i": "list", "t": ["last", "list"]})
        sliced = grouped["i_list", "t_list"] >> list_slice(0, 2)
        return nvt.Workflow(sliced + grouped["s", "t_last"])

    dataset = Dataset(frame, cpu=True, npartitions=3)
    ours, theirs = workflow(GroupSessions, SliceLists), workflow(Groupby, ListSlice)
    found, expected = ours.fit_transform(dataset), theirs.fit_transform(dataset)
    assert ours.output_schema == theirs.output_schema
    assert lists(found.compute()) == lists(expected.compute())
    found.to_parquet(str(tmp_path))
    table = pq.read_table(tmp_path / "part_0.parquet")
    assert table["i_list"].type.value_type == "int32"
    assert sum(len(pq.read_table(path)) for path in tmp_path.glob("*.parquet")) == 30


def test_columns_without_lists_pass_the_slicing_unchanged():
    frame = pd.DataFrame({"key": [1, 2], "name": ["a", "b"], "lists": [[1, 2, 3], [4]]})
    sliced = SliceLists(2).transform(ColumnSelector(["key", "name", "lists"]), frame)
    assert sliced["key"].tolist() == [1, 2]
    assert sliced["name"].tolist() == ["a", "b"]
    assert [list(values) for values in sliced["lists"]] == [[1, 2], [4]]
