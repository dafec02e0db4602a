"""The sizes of the growth benchmark: each gives settings that are valid."""

from pathlib import Path

import pytest

from dayahead.config.loading import read_yaml, validated
from dayahead.config.params import Params
from growth import BASE, FACTORS, settings_of

DEFAULTS = read_yaml(Path(__file__).parents[3] / "params.yaml")
SIZES = [(factor, size) for factor, sizes in FACTORS.items() for size in sizes]


@pytest.mark.parametrize(("factor", "size"), SIZES)
def test_every_size_gives_valid_settings(factor, size):
    changed = settings_of(BASE | {factor: size})
    sections = {name: DEFAULTS[name] | values for name, values in changed.items()}
    assert validated(Params, DEFAULTS | sections, "params.yaml")
