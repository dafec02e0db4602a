"""A sharded item table: losses, gradients and ranks are those of one process."""

import pytest

from dayahead.core.files import read_json
from dayahead.distributed.launch import run_processes
from support.tiny_settings import compute_config
from support.worker_sharing import CANDIDATES, CASES, compare_gradients, compare_ranks


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
