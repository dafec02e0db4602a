"""A sharded item table: losses, gradients, ranks and states are those of one process."""

import pytest

from dayahead.core.files import read_json
from dayahead.distributed.launch import run_processes
from support.tiny_settings import compute_config
from support.worker_sharding import (
    CANDIDATES,
    CASES,
    compare_gradients,
    compare_ranks,
    compare_with_dtensor,
    exchange_in_bfloat16,
    write_and_read_rows,
)


@pytest.fixture(scope="module", params=[2, 4])
def differences(request, tmp_path_factory):
    """Differences from one process, by rank, case and name (the loss and each parameter)."""
    folder = tmp_path_factory.mktemp("differences")
    run_processes(compare_gradients, compute_config(processes=request.param), folder)
    return [read_json(folder / f"{rank}.json") for rank in range(request.param)]


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_loss_and_gradients_are_those_of_one_process(differences, case):
    for of_rank in differences:
        assert len(of_rank[case]) > 5
        for name, difference in of_rank[case].items():
            assert difference <= 1e-6, name


@pytest.mark.slow
@pytest.mark.parametrize("n_processes", [2, 4])
def test_ranks_and_top_items_are_those_of_one_process(n_processes, tmp_path):
    run_processes(compare_ranks, compute_config(processes=n_processes), tmp_path)
    for rank in range(n_processes):
        is_same = read_json(tmp_path / f"{rank}.json")
        assert is_same == {name: [True, True, True] for name in CANDIDATES}


@pytest.mark.slow
def test_sharded_rows_are_written_whole_and_read_by_rows(tmp_path):
    run_processes(write_and_read_rows, compute_config(processes=3), tmp_path)
    assert [read_json(tmp_path / f"{rank}.json") for rank in range(3)] == [[True, True]] * 3


@pytest.mark.slow
@pytest.mark.parametrize("n_processes", [2, 4])
def test_bfloat16_values_are_sent_as_such_and_gradients_summed_in_float32(n_processes, tmp_path):
    run_processes(exchange_in_bfloat16, compute_config(processes=n_processes), tmp_path)
    for rank in range(n_processes):
        assert read_json(tmp_path / f"{rank}.json") == [True] * 4


@pytest.mark.slow
def test_the_softmax_over_sharded_rows_is_that_of_torch_over_a_dtensor(tmp_path):
    run_processes(compare_with_dtensor, compute_config(processes=2), tmp_path)
    for rank in range(2):
        found = read_json(tmp_path / f"{rank}.json")
        assert found.keys() == {"loss", "states", "table", "bias"}
        assert max(found.values()) <= 1e-6
