"""Collectives between processes give what each of them can compute alone."""

import pytest

from dayahead.core.files import read_json
from dayahead.distributed.launch import run_processes
from support.tiny_settings import compute_config
from support.worker_collectives import compare_with_known


@pytest.mark.slow
@pytest.mark.parametrize("n_processes", [2, 3])
def test_unequal_lengths_and_sums_of_gradients(n_processes, tmp_path):
    run_processes(compare_with_known, compute_config(processes=n_processes), tmp_path)
    for rank in range(n_processes):
        assert set(read_json(tmp_path / f"{rank}.json").values()) == {True}
