"""Settings with a bit flipped or an end cut off: refused in words, or just other settings."""

import random
from pathlib import Path

import pytest

from dayahead.config.loading import read_yaml
from dayahead.config.params import Params, load_params
from dayahead.core.errors import ConfigError
from dayahead.dataset.schema import DatasetConfig, load_dataset

ROOT = Path(__file__).parents[3]
DATASETS = sorted((ROOT / "datasets").glob("*.yaml"))


def damaged(path, seed):
    dice = random.Random(seed)
    held = bytearray(path.read_bytes())
    place = dice.randrange(len(held))
    held[place] ^= 1 << dice.randrange(8)
    return bytes(held[:place] if seed % 3 == 0 else held)


@pytest.mark.parametrize("seed", range(150))
def test_params_are_refused_or_just_other_ones(tmp_path, seed):
    path = tmp_path / "params.yaml"
    path.write_bytes(damaged(ROOT / "params.yaml", seed))
    try:
        assert isinstance(load_params(path), Params)
    except ConfigError as error:
        assert "params.yaml" in str(error)  # noqa: PT017


@pytest.mark.parametrize("seed", range(150))
def test_a_data_set_is_refused_or_just_another_one(tmp_path, monkeypatch, seed):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DAYAHEAD_DATA", str(tmp_path))
    source = DATASETS[seed % len(DATASETS)]
    Path("datasets").mkdir()
    Path("datasets", source.name).write_bytes(damaged(source, seed))
    try:
        assert isinstance(load_dataset(source.stem), DatasetConfig)
    except ConfigError as error:
        assert source.name in str(error)  # noqa: PT017


@pytest.mark.parametrize("time", ["2016-06-02T80:00:00Z", "2014-09-30T03:00:81Z", "2026-81-01"])
def test_a_time_that_is_none_is_refused(tmp_path, time):
    (tmp_path / "x.yaml").write_text(f"start: {time}\n")
    with pytest.raises(ConfigError, match=r"x\.yaml: not readable as YAML: .* must be in"):
        read_yaml(tmp_path / "x.yaml")
