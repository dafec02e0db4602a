"""States whose indices or sizes do not fit are refused before a model takes them."""

from copy import deepcopy

import pytest
import torch

from dayahead.core.errors import ModelFileError
from dayahead.model.checkpoint import restore_weights, weights_of
from support.tiny_settings import baseline, count_sessions, count_window, tiny_model

COUNTING = ("memory", "popularity", "transitions", "cooccurrence", "stan", "slist")
N_ITEMS = 30
SIZES = {"item_id": N_ITEMS, "category": 3}
INT64 = torch.iinfo(torch.int64)
NEVER = ("items.first", "items.latest")
"""Times that may be as low as an int64 is."""


@pytest.fixture(scope="module", params=[*COUNTING, "memory with ticks"])
def fitted(request):
    """A new model, and the state of one that counted two windows."""
    architecture, _, ticks = request.param.partition(" with ")
    live = {"live": {"tick": "10min"}} if ticks else {}
    model = baseline(architecture, N_ITEMS, **live)
    sessions = [[2, 3, 4, 5], [3, 2], [4, 4, 2], [5, 6, 31]]
    for start in (0, 86_400):
        if ticks:  # two sessions before the window's end, and two after it
            model.start_window((start + 86_400) * 1_000_000)
            count_sessions(model, sessions, start + 86_398)
            model.finish_window()
        else:
            count_window(model, sessions, start)
    return baseline(architecture, 0, **live), weights_of(model)


def test_the_state_with_ticks_holds_clicks_that_wait_and_running_sessions(fitted):
    _, state = fitted
    for part in ("pending", "counted"):
        times = state.get(f"memory.running.{part}.times")
        assert times is None or len(times)


def changed(state, name, change):
    return state | {name: change(state[name].clone())}


def of_kind(state, *, floating):
    return [n for n, each in state.items() if each.is_floating_point() == floating and each.numel()]


def assert_refused(model, state, name):
    """As by a new model; the message names the array, or one that it does not fit."""
    refused = None
    try:
        restore_weights(deepcopy(model), SIZES, state)
    except ModelFileError as error:
        refused = str(error)
    assert refused, (
        f"{name}: damaged, and taken; it needs a line in the model's limits or row_rules"
    )
    assert name.rpartition(".")[0] in refused


def test_a_whole_state_is_taken(fitted):
    model, state = fitted
    taken = deepcopy(model)
    restore_weights(taken, SIZES, state)
    again = weights_of(taken)
    assert all(torch.equal(tensor, again[name]) for name, tensor in state.items())


def set_at(position, value):
    def change(tensor):
        tensor.view(-1)[position] = value
        return tensor

    return change


def test_no_index_leads_out_of_an_array(fitted):
    """Whether the first or the last value is too high or too low."""
    model, state = fitted
    for name in of_kind(state, floating=False):
        tensor = state[name]
        if tensor.dtype == torch.bool:
            continue
        limits = torch.iinfo(tensor.dtype)
        for position in (0, -1):
            assert_refused(model, changed(state, name, set_at(position, limits.max)), name)
            if not name.endswith(NEVER):
                assert_refused(model, changed(state, name, set_at(position, -2)), name)


def test_no_array_is_shorter_or_longer_than_those_beside_it(fitted):
    model, state = fitted
    for name, tensor in state.items():
        if tensor.dim() and len(tensor) > 1:
            assert_refused(model, changed(state, name, lambda each: each[: len(each) // 2]), name)
            assert_refused(model, changed(state, name, lambda each: torch.cat([each, each])), name)
        assert_refused(model, changed(state, name, lambda each: each[..., None]), name)


def test_no_array_is_of_another_type(fitted):
    model, state = fitted
    for name, tensor in state.items():
        other = torch.float64 if tensor.dtype != torch.float64 else torch.float32
        assert_refused(model, changed(state, name, lambda each, other=other: each.to(other)), name)


def test_no_number_is_infinite(fitted):
    model, state = fitted
    for name in of_kind(state, floating=True):
        for value in (torch.nan, torch.inf):
            assert_refused(model, changed(state, name, set_at(-1, value)), name)


def test_no_array_is_missing(fitted):
    model, state = fitted
    for name in state:
        if ".moments." not in name:  # there are none before the head has learned
            assert_refused(model, {n: each for n, each in state.items() if n != name}, "")


def test_offsets_ascend():
    model = baseline("stan", N_ITEMS)
    count_window(model, [[2, 3, 4, 5], [3, 2], [4, 4, 2], [5, 6, 31]])
    state = weights_of(model)
    for offsets in ([0, 4, 3, 8, 11], [0, INT64.max, INT64.min, -1, 11]):
        wrong = state | {"offsets": torch.tensor(offsets)}
        with pytest.raises(ModelFileError, match="offsets: expected"):
            restore_weights(baseline("stan", 0), SIZES, wrong)


@pytest.mark.long
@pytest.mark.parametrize(
    ("architecture", "task"),
    [("gpt2", "clm"), pytest.param("bert", "mlm", marks=pytest.mark.slow)],
)
def test_no_weight_of_a_network_has_another_shape(architecture, task):
    state = weights_of(tiny_model(architecture, task, n_items=N_ITEMS))
    for name, tensor in state.items():
        for wrong in (tensor[..., None], torch.cat([tensor, tensor]), tensor.double()):
            model = tiny_model(architecture, task, n_items=1)
            with pytest.raises(ModelFileError):
                restore_weights(model, SIZES, state | {name: wrong})
