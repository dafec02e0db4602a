"""Whole studies on a real GPU agree with those on the CPU: python -m pytest -m gpu."""

import pytest
import torch

from dayahead.model import huggingface
from support.backbones import TRAINED
from support.gpu_studies import DAYS, VARIANTS, difference
from support.pretended_gpu import pretended_gpu
from support.window_folders import write_window_folder

CLOSE, ROUGH = 0.001, 0.1
"""Relative differences of losses: of sums in another order; of bfloat16, or other dropout."""
ROUGH_VARIANTS = ("bfloat16", "bfloat16 gru", "noise")


def on_gpu(test):
    """Mark a test for a GPU, where a library's warning is shown but is no failure."""
    return pytest.mark.gpu(pytest.mark.filterwarnings("default")(test))


@pytest.fixture(scope="module")
def windows(tmp_path_factory):
    return write_window_folder(tmp_path_factory.mktemp("windows"), DAYS, features=True)


@pytest.fixture
def gpu():
    """The name of the device; without one the test fails, as it was asked for."""
    if not torch.cuda.is_available():
        pytest.fail(f"torch {torch.__version__} sees no GPU here")
    return "cuda"


@on_gpu
@pytest.mark.parametrize(("architecture", "task"), TRAINED)
def test_every_backbone_agrees_with_the_cpu(windows, tmp_path, gpu, architecture, task):
    sections = {"model": {"architecture": architecture}, "task": {"name": task}}
    assert difference(windows, tmp_path, sections, gpu) < CLOSE


@on_gpu
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_agrees_with_the_cpu(windows, tmp_path, gpu, variant):
    tolerance = ROUGH if variant in ROUGH_VARIANTS else CLOSE
    assert difference(windows, tmp_path, VARIANTS[variant], gpu) < tolerance


@pytest.mark.slow
def test_these_checks_see_a_missing_mask(windows, tmp_path, monkeypatch):
    """Of padding, on the GPU alone."""
    monkeypatch.setattr(huggingface, "MASKED", huggingface.UNMASKED)
    sections = {"model": {"architecture": "bert"}, "task": {"name": "mlm"}}
    with pretended_gpu():
        assert difference(windows, tmp_path, sections, "cuda") > CLOSE
