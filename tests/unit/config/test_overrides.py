"""`dvc exp run -S ...`: what DVC writes into params.yaml is read, or refused with its names."""

import random
import shutil
from pathlib import Path

import pytest
from dvc.exceptions import DvcException
from dvc.utils.hydra import apply_overrides
from omegaconf.errors import OmegaConfBaseException

from dayahead.config.loading import read_yaml
from dayahead.config.params import Params, load_params
from dayahead.core.errors import ConfigError

OWN = Path(__file__).parents[3] / "params.yaml"
KEYS = [
    key if isinstance(value, str) else f"{key}.{inner}"
    for key, value in read_yaml(OWN).items()
    for inner in ([""] if isinstance(value, str) else value)
]
WORDS = [
    *("0", "1", "-1", "7", "1.5", "1e3", "1e400", "nan", "inf", "true", "null", "", "''", "0x10"),
    *("[]", "[1]", "[a,b]", "[[1]]", "[1,1]", "{}", "{a:1}", "{a:[null]}", "{epochs:2}", "all"),
    *("auto", "xlnet", "mlm", "g1", "../g1", "day", "hour", "2026-01-03", "2026-13-01", "1_000"),
    *("\u65e5\u672c", "'a b'", "'\u0663'", "12345678901234567890", "'#'", "no", "~", "010", "1:30"),
]


def overrides(rng):
    """One to four -S options; now and then a setting that does not exist, or its removal."""
    keys = rng.sample(KEYS, rng.randint(1, 4))
    marks = rng.choices(["{}={}", "+{}={}", "+{}x={}", "~{}"], [90, 4, 3, 3], k=len(keys))
    return [mark.format(key, rng.choice(WORDS)) for mark, key in zip(marks, keys, strict=True)]


def complaint(path):
    """What is said against the settings, or nothing."""
    try:
        assert isinstance(load_params(path), Params)
    except ConfigError as error:
        return str(error)
    return ""


@pytest.mark.long
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 22))]
)
def test_any_override_is_read_or_refused_by_name(tmp_path, seed):
    rng = random.Random(seed)
    path = tmp_path / "params.yaml"
    said = []
    while len(said) < 25:
        shutil.copy(OWN, path)
        given = overrides(rng)
        try:
            apply_overrides(path, given)
        except (DvcException, OmegaConfBaseException):  # DVC itself refuses it
            continue
        said.append(complaint(path))
        sections = [option.strip("+~").partition("=")[0].partition(".")[0] for option in given]
        assert not said[-1] or any(section in said[-1] for section in sections), given
    assert sum(map(bool, said)) > 5
