"""Categorise gives a number to what Categorify gives one to."""

import pandas as pd
import pytest
from merlin.io import Dataset
from nvtabular import Workflow
from nvtabular.ops import Categorify

from dayahead.features.operators import Categorise


def test_values_are_numbered_by_first_occurrence_over_partitions():
    frame = pd.DataFrame(
        {
            "item": pd.array([7, None, 5, 7, 2**53 + 1, 5], dtype="Int64"),
            "brand": ["b", "a", None, "a", "c", "b"],
        }
    )
    operator = Categorise()
    workflow = Workflow(["item", "brand"] >> operator)
    found = workflow.fit_transform(Dataset(frame, cpu=True, npartitions=3)).compute()
    assert found.to_dict("list") == {"item": [2, 1, 3, 2, 4, 3], "brand": [2, 3, 1, 3, 4, 2]}
    assert {dtype.name for dtype in found.dtypes} == {"int32"}
    assert operator.values["item"].to_pylist() == [7, 5, 2**53 + 1]
    later = pd.DataFrame({"item": pd.array([5, 6], dtype="Int64"), "brand": ["x", "c"]})
    assert workflow.transform(later).to_dict("list") == {"item": [3, 1], "brand": [1, 4]}


@pytest.mark.parametrize("npartitions", [1, 4])
def test_the_same_values_are_told_apart_as_by_categorify(tmp_path, npartitions):
    frame = pd.DataFrame({"x": [3, 1, 3, 9, 1, 1, 4, 4], "y": list("abcaabdd")})
    dataset = Dataset(frame, cpu=True, npartitions=npartitions)
    ours = Workflow(["x", "y"] >> Categorise()).fit_transform(dataset).compute()
    categorify = Categorify(out_path=str(tmp_path))
    theirs = Workflow(["x", "y"] >> categorify).fit_transform(dataset).compute()
    for name in frame:
        pairs = set(zip(ours[name], theirs[name], strict=True))
        assert len(pairs) == frame[name].nunique()
