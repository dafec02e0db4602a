"""The three pipelines of the benchmark make the same sessions, and the right ones."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import operators
from operators import assert_equal, by_nvtabular, by_ours, by_polars, timed, write_log


@pytest.fixture
def tiny_log(tmp_path):
    """Two sessions in two files: 7 comes three times, 9 once; the second is longer than 20."""
    first = {"session_id": [1, 1], "event_time": [2, 1], "item_id": [9, 7], "category_id": [5, 5]}
    n = 22
    second = {"session_id": [2] * n, "event_time": [*range(n)], "item_id": [7, 7, *range(30, 50)]}
    second["category_id"] = [5] * n
    paths = []
    for number, columns in enumerate((first, second)):
        columns["price"] = [float(value) for value in columns["item_id"]]
        paths.append(tmp_path / f"{number}.parquet")
        pq.write_table(pa.table(columns), paths[-1])
    return paths


@pytest.mark.parametrize("pipeline", [by_nvtabular, by_ours, by_polars])
def test_a_pipeline_groups_sorts_cuts_and_standardises(pipeline, tiny_log, tmp_path):
    _, found = timed(pipeline, tiny_log, tmp_path / "work")
    assert found["session_id"].to_pylist() == [1, 2]
    assert found["item_id length"].to_pylist() == [2, 20]
    assert found["item_id"].to_pylist() == [7, 9, 7, 7, *range(30, 48)]
    assert found["event_time"].to_pylist() == [1, 2, *range(20)]
    logs = np.log1p([9, 7, 7, 7, *range(30, 50)])
    expected = (np.log1p([7, 9, 7, 7, *range(30, 48)]) - logs.mean()) / logs.std(ddof=1)
    assert np.allclose(found["price"], expected, atol=1e-5)


def test_pipelines_agree_on_a_log_of_the_benchmark(tmp_path, monkeypatch):
    monkeypatch.setattr(operators, "SESSIONS_PER_FILE", 200)
    paths = write_log(tmp_path, millions=0.002)
    assert len(paths) == 2
    _, expected = timed(by_nvtabular, paths, tmp_path / "work")
    for pipeline in (by_ours, by_polars):
        _, found = timed(pipeline, paths, tmp_path / "work")
        assert_equal(found, expected)
    with pytest.raises(AssertionError, match="item_id"):
        assert_equal(found | {"item_id": found["item_id"].slice(1)}, expected)
