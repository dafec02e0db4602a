"""With a sampled loss, processes sum the gradients of those rows alone that a step reads."""

import pytest
import torch
from safetensors.torch import load_file

from dayahead.core.files import read_json
from dayahead.distributed.launch import run_processes
from support.tiny_settings import compute_config
from support.worker_trainers import FITS, N_ITEMS, fit_all


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """Weights and sizes of what was summed by fit, number of processes and rank."""
    folder = tmp_path_factory.mktemp("fits")
    for n_processes in (1, 2):
        run_processes(fit_all, compute_config(processes=n_processes), folder)
    return folder


def weights_of(folder, name, n_processes, rank):
    return load_file(folder / f"{name}-{n_processes}-{rank}.safetensors")


@pytest.mark.parametrize("name", FITS)
def test_processes_end_with_the_same_bits_and_the_weights_of_one(fitted, name):
    one = weights_of(fitted, name, 1, 0)
    first, second = (weights_of(fitted, name, 2, rank) for rank in (0, 1))
    for key, weights in one.items():
        assert torch.equal(first[key], second[key]), key
        torch.testing.assert_close(first[key], weights, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", FITS)
def test_no_gradient_of_a_whole_table_is_sent(fitted, name):
    """A step reads 8 sessions of 4 items and 10 negatives of 5,000; biases are sent whole."""
    dim = weights_of(fitted, name, 1, 0)["inputs.items.weight"].shape[1]
    assert N_ITEMS < read_json(fitted / f"{name}-2-0.json") < N_ITEMS * dim / 4
