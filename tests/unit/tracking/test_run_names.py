import pytest
from hypothesis import given
from hypothesis import strategies as st

from dayahead.config.baselines import BASELINES
from dayahead.tracking.run_names import run_name
from support.tiny_settings import tiny_params

EXAMPLES = {
    "gpt2/clm d128 L2 seed 1, tiny": {"model": {"d_model": 128, "n_layer": 2}},
    "bert/mlm d16 L1 seed 7, tiny": {
        "model": {"architecture": "bert"},
        "task": {"name": "mlm"},
        "training": {"seed": 7},
    },
    "memory+gru/clm d16 L1 seed 1, tiny": {"model": {"architecture": "memory", "network": "gru"}},
    "memory seed 1, tiny": {"model": {"architecture": "memory"}},
    "vsknn, tiny": {"model": {"architecture": "vsknn"}},
    "popularity, tiny hour": {"window": {"unit": "hour"}, "model": {"architecture": "popularity"}},
    "slist, tiny 15-minute": {
        "window": {"unit": "minute", "length": 15},
        "model": {"architecture": "slist"},
    },
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_run_is_named_by_what_it_is(name):
    assert run_name(tiny_params(EXAMPLES[name])) == name


@pytest.mark.parametrize(
    ("experiment", "prefix"),
    [("lofty-sail", ""), (None, ""), ("", ""), ("wider", "wider: "), ("try-2", "try-2: ")],
)
def test_an_experiment_is_named_first_where_its_user_named_it(experiment, prefix):
    assert run_name(tiny_params(), experiment) == f"{prefix}gpt2/clm d16 L1 seed 1, tiny"


SETTINGS = st.fixed_dictionaries(
    {
        "window": st.fixed_dictionaries({"unit": st.sampled_from(["day", "hour"])}),
        "model": st.fixed_dictionaries(
            {
                "architecture": st.sampled_from(["gpt2", "gru", "memory", *BASELINES]),
                "network": st.sampled_from(["none", "gpt2", "xlnet"]),
                "d_model": st.integers(1, 1024),
                "n_layer": st.integers(1, 64),
            }
        ),
        "task": st.fixed_dictionaries({"name": st.sampled_from(["clm", "mlm", "plm"])}),
        "training": st.fixed_dictionaries({"seed": st.integers(0, (1 << 63) - 1)}),
    }
)


def named(settings):
    """The settings that a name holds."""
    params = tiny_params(settings)
    model, is_baseline = params.model, params.model.architecture in BASELINES
    facts = [params.window.unit, model.architecture]
    facts += [] if is_baseline else [params.training.seed]
    network = [model.d_model, model.n_layer, params.task.name]
    network += [model.network] if model.architecture == "memory" else []
    return facts + (network if model.has_network else [])


@given(one=SETTINGS, other=SETTINGS)
def test_names_are_equal_where_what_they_tell_is(one, other):
    first, second = (run_name(tiny_params(settings)) for settings in (one, other))
    assert (first == second) == (named(one) == named(other))
    assert first == run_name(tiny_params(one | {"tracking": {"experiment": "other"}}))
    assert len(first) < 80
    assert first.isprintable()
