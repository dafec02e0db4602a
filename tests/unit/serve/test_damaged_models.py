"""Damaged models: each is refused with one line, or gives finite scores; none ends the process."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dayahead.core.errors import ModelFileError
from dayahead.model.checkpoint import load_model
from dayahead.nightly.publication import model_name
from support.damaged_models import DAMAGES, FINITE, answer, damaged_copy
from support.window_folders import bytes_in

TESTS = Path(__file__).parents[2]
MODELS = {
    "memory with network": {"architecture": "memory", "network": "gpt2", "features": ("category",)},
    "memory": {"architecture": "memory"},
    "stan": {"architecture": "stan"},
    "transitions": {"architecture": "transitions"},
    "slist": {"architecture": "slist"},
    "gpt2": {"architecture": "gpt2", "features": ("category", "price")},
    "gru": {"architecture": "gru"},
}
PER_MODEL = 43
"""Damages of each model, 301 of all."""
FAST = [("slist", seed) for seed in (1, 4, 8, 9, 11, 12)] + [
    ("memory", seed) for seed in (1, 5, 10, 12, 23, 31)
]
"""Some that ended the process or gave no finite scores before states were checked."""


def assert_answered(result, damage=""):
    is_known = result == FINITE or result.startswith(("ModelFileError: ", "ScoreError: "))
    assert is_known, (damage, result)
    assert "\n" not in result, (damage, result)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "seed"), FAST)
def test_a_damaged_model_is_refused_or_gives_finite_scores(saved_model, tmp_path, name, seed):
    damaged_copy(saved_model(**MODELS[name]), tmp_path / "damaged", seed)
    assert_answered(answer(tmp_path / "damaged"))


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_no_damage_ends_the_process(saved_model, tmp_path, name):
    shutil.copytree(saved_model(**MODELS[name]), tmp_path / "models")
    command = [sys.executable, "-X", "faulthandler", "-m", "support.damaged_models"]
    done = subprocess.run(
        [*command, tmp_path / "models", "0", str(PER_MODEL)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, (lines[-1:], done.stderr)
    assert len(lines) == 2 * PER_MODEL
    for (_, damage), (_, result) in zip(lines[::2], lines[1::2], strict=True):
        assert_answered(result, damage)


@pytest.mark.long
def test_a_published_model_is_refused_whatever_the_damage(saved_model, tmp_path):
    """Its name says what its files hold, so that nothing of it is read."""
    models = saved_model(**MODELS["gpt2"])
    whole = bytes_in(models)
    published = tmp_path / model_name(models, "2026-01-01")
    shutil.copytree(models, published)
    assert answer(published) == FINITE
    for seed in range(2 * len(DAMAGES)):
        damaged_copy(models, published, seed)
        if bytes_in(published) != whole:
            with pytest.raises(ModelFileError, match="not those that were published"):
                load_model(published)
