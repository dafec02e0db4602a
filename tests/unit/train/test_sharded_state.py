"""An item table shared out over processes: the loss, gradients and states of the whole one."""

import pytest

from dayahead.core.files import read_json
from dayahead.distributed.launch import run_processes
from support.tiny_settings import compute_config
from support.worker_sharing import CANDIDATES, CASES, compare_with_whole, rank_together


@pytest.fixture(scope="module", params=[2, 4])
def departures(request, tmp_path_factory):
    """Of so many processes from one, by case: of the loss, and of each parameter's gradient."""
    folder = tmp_path_factory.mktemp("departures")
    run_processes(compare_with_whole, compute_config(processes=request.param), folder)
    return [read_json(folder / f"{rank}.json") for rank in range(request.param)]


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_loss_and_gradients_are_those_of_one_process(departures, case):
    for of_rank in departures:
        assert len(of_rank[case]) > 5
        for name, departure in of_rank[case].items():
            assert departure <= 1e-6, name


@pytest.mark.slow
@pytest.mark.parametrize("n_processes", [2, 4])
def test_ranks_and_best_items_are_those_of_one_process(n_processes, tmp_path):
    run_processes(rank_together, compute_config(processes=n_processes), tmp_path)
    for rank in range(n_processes):
        same = read_json(tmp_path / f"{rank}.json")
        assert same == {name: [True, True, True] for name in CANDIDATES}
