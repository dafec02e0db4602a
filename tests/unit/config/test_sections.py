"""Settings by section and by their names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dayahead.config.sections import flattened, merged, nested

names = st.text("abc_", min_size=1, max_size=3)
values = st.none() | st.integers() | st.lists(st.integers(), max_size=2)
sections = st.dictionaries(
    names, values | st.dictionaries(names, values | st.just({}), min_size=1), max_size=4
)


def test_names_are_those_of_dvc():
    assert flattened({"dataset": "g1", "model": {"n_layer": 2, "options": {"a": 1}}}) == {
        "dataset": "g1",
        "model.n_layer": 2,
        "model.options": {"a": 1},
    }


@given(sections)
def test_sections_and_names_are_inverse(params):
    assert nested(flattened(params)) == params


@given(sections)
def test_merged_settings_change_and_the_rest_stays(params):
    assert merged(params, {}) == params
    changed = merged(params, {"model.n_layer": 3})
    assert flattened(changed) == flattened(params) | {"model.n_layer": 3}


@pytest.mark.parametrize("wrong", ["g1", None, 3])
def test_a_section_replaces_a_value_in_its_place(wrong):
    assert merged({"model": wrong}, {"model.n_layer": 3}) == {"model": {"n_layer": 3}}


def test_a_setting_alone_in_its_section_may_be_new():
    assert merged({"dataset": "g1"}, {"model.n_layer": 3}) == {
        "dataset": "g1",
        "model": {"n_layer": 3},
    }
