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


@pytest.mark.parametrize(
    "before", [{"model": "g1"}, {"model": None}, {"model": 3}, {"dataset": "g1"}]
)
def test_a_section_is_new_or_replaces_a_value_in_its_place(before):
    assert merged(before, {"model.n_layer": 3}) == before | {"model": {"n_layer": 3}}
