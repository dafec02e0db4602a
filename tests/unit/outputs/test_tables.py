"""What is written is read back, what is damaged is refused."""

from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest

from dayahead.core.columns import RANKS_SCHEMA
from dayahead.core.errors import DataError
from dayahead.metrics.metrics import window_metrics
from dayahead.outputs.tables import (
    ranked_windows,
    ranks_path,
    read_ranks,
    read_windows,
    window_result,
    write_ranks,
    write_windows,
)
from support.results_folders import CUTOFFS, result_of, window_ranks


def test_windows_csv_gives_back_the_very_same_floats(tmp_path):
    rows = [
        result_of("2019-10-02", [1, 3, 0], train_loss=1 / 3),
        result_of("2019-10-03", [7, 7, 7]),
    ]
    write_windows(tmp_path / "windows.csv", rows)
    assert read_windows(tmp_path / "windows.csv", CUTOFFS) == rows


def test_train_metrics_stand_behind_the_loss_and_may_be_missing(tmp_path):
    train = window_metrics(np.array([1, 2, 0]), [1])
    rows = [
        result_of("2019-10-02", [1, 3], [1], train_metrics={}),
        result_of("2019-10-03", [1, 3], [1], train_metrics=train),
    ]
    write_windows(tmp_path / "w.csv", rows)
    assert read_windows(tmp_path / "w.csv", [1]) == rows
    head, first, second = (tmp_path / "w.csv").read_text().splitlines()
    assert head.endswith(",train_loss,train_recall_at_1,train_ndcg_at_1,train_mrr_at_1")
    assert first.endswith(",0.5,,,,")
    assert second.endswith(f",0.5,,{1 / 3},{1 / 3},{1 / 3}")


@pytest.mark.parametrize("n_written", [1, 2, 3])
def test_rows_added_one_by_one_are_those_written_at_once(tmp_path, n_written):
    plain = [result_of(f"2019-10-0{day}", [0, day], [20]) for day in (2, 3, 4)]
    trained = replace(plain[1], train_metrics=plain[1].metrics)
    for rows in (plain, [plain[0], trained, plain[2]]):
        write_windows(tmp_path / "whole.csv", rows)
        for n_before in range(0, 3, n_written):
            write_windows(tmp_path / "longer.csv", rows[: n_before + n_written], n_before)
        assert (tmp_path / "longer.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()


def test_windows_csv_has_the_columns_of_the_contract(tmp_path):
    write_windows(tmp_path / "w.csv", [result_of("2019-10-02", [0, 2], [20])])
    head, row = (tmp_path / "w.csv").read_text().splitlines()
    assert head == "window,n_sessions,target_outside,recall_at_20,ndcg_at_20,mrr_at_20,train_loss"
    assert row == "2019-10-02,2,0.5,0.5,0.31546487678572877,0.25,"


def test_ranks_keep_their_order_and_misses_are_null(tmp_path):
    written = window_ranks([3, 0, 1], targets=[5, 9, 5], session_ids=["b", "a", "c"])
    write_ranks(tmp_path, "2019-10-02", written)
    table = pq.ParquetFile(ranks_path(tmp_path, "2019-10-02")).read()
    assert table.schema.equals(RANKS_SCHEMA)
    assert table["rank"].to_pylist() == [3, None, 1]
    found = read_ranks(tmp_path, "2019-10-02")
    assert found.session_ids.to_pylist() == ["b", "a", "c"]
    assert found.targets.tolist() == [5, 9, 5]
    assert found.ranks.tolist() == [3, 0, 1]
    assert ranked_windows(tmp_path) == ["2019-10-02"]


def test_ranks_of_all_positions_name_them(tmp_path):
    written = window_ranks([3, 0, 1], session_ids=["b", "b", "a"], positions=[1, 2, 1])
    assert written.n_sessions == 2
    write_ranks(tmp_path, "2019-10-02", written)
    table = pq.ParquetFile(ranks_path(tmp_path, "2019-10-02")).read()
    assert table.column_names == ["session_id", "position", "target", "rank"]
    found = read_ranks(tmp_path, "2019-10-02")
    assert found.positions.tolist() == [1, 2, 1]
    assert found.ranks.tolist() == [3, 0, 1]
    result = window_result("2019-10-02", found, [1], None, {})
    assert (result.n_sessions, result.target_outside) == (2, 1 / 3)
    assert result.metrics["recall_at_1"] == 1 / 3


def test_a_window_without_sessions_is_refused():
    with pytest.raises(DataError, match="2019-10-02 has no sessions"):
        result_of("2019-10-02", [])


def test_a_cutoff_that_was_not_written_is_refused(tmp_path):
    write_windows(tmp_path / "w.csv", [result_of("2019-10-02", [1], [20])])
    with pytest.raises(DataError, match="recall_at_5"):
        read_windows(tmp_path / "w.csv", [5])
