"""Event inputs by hand and against an oracle, no feature lost; swap noise, hidden items."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dayahead.model.inputs import (
    EventInputs,
    hide_new_items,
    projection,
    swap_noise,
    vector_dims,
)
from dayahead.model.next_item import NextItemModel
from dayahead.model.rng import StepRandom
from support.tiny_settings import (
    columns_of,
    loss_config,
    model_config,
    padded,
    step_random,
    task_config,
    tiny_model,
)

COLUMNS = {
    "item_id": torch.tensor([[2, 3, 1, 0]]),
    "category": torch.tensor([[2, 3, 99, 0]]),
    "price": torch.tensor([[0.5, -2.0, 1.0, 0.0]]),
}


def inputs_of(categoricals=("category",), numbers=("price",), n_items=5, **changes):
    """Inputs of a category of 3 values and a price."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        inputs = EventInputs(
            model_config(**changes),
            dict.fromkeys(categoricals, 3),
            dict.fromkeys(numbers, "number"),
            seed=1,
        )
    inputs.grow({"item_id": n_items, "category": 3})
    return inputs


def encoded(inputs, columns=COLUMNS):
    return inputs.eval()(columns, inputs.items(columns["item_id"])).detach()


def rows(table, *indices):
    """Rows of a table; None is padding's zeros, "unknown" the vector of unknown values."""
    named = {None: torch.zeros(table.weight.shape[1]), "unknown": table.unknown}
    return torch.stack([named[i] if i in named else table.weight[i] for i in indices]).detach()


def test_concatenation_by_hand():
    inputs = inputs_of(embedding_multiplier=1.0)
    item = rows(inputs.items, 0, 1, "unknown", None)
    category = rows(inputs.tables["category"], 0, 1, "unknown", None)
    wanted = torch.cat([item, category, COLUMNS["price"][0][:, None]], dim=1)
    assert wanted.shape == (4, 16 + 2 + 1)
    weight, bias = inputs.project.weight.detach(), inputs.project.bias.detach()
    torch.testing.assert_close(encoded(inputs)[0], wanted @ weight.T + bias)


def test_elementwise_merging_by_hand():
    inputs = inputs_of(merge="elementwise")
    item = rows(inputs.items, 0, 1, "unknown", None)
    category = rows(inputs.tables["category"], 0, 1, "unknown", None)
    number = inputs.numbers["feature_price"]
    price = COLUMNS["price"][0][:, None] @ number.weight.detach().T + number.bias.detach()
    torch.testing.assert_close(encoded(inputs)[0], item * (1 + category + price))
    assert isinstance(inputs.project, torch.nn.Identity)


def test_elementwise_merging_without_features_is_the_item():
    inputs = inputs_of(categoricals=(), numbers=(), merge="elementwise")
    assert torch.equal(encoded(inputs)[0], rows(inputs.items, 0, 1, "unknown", None))


@pytest.mark.parametrize(
    ("changes", "dims"),
    [
        ({}, [16, 3, 1]),
        ({"embedding_multiplier": 7.0, "number_dim": 5}, [16, 10, 5]),
        ({"soft_one_hot": 4, "number_dim": 5}, [16, 3, 5]),
        ({"merge": "elementwise"}, [16, 16, 16]),
        ({"merge": "elementwise", "item_embedding_dim": 6, "soft_one_hot": 4}, [6, 6, 6]),
    ],
)
def test_sizes_of_vectors(changes, dims):
    found = vector_dims(model_config(**changes), {"category": 3}, {"price": "number"})
    assert found == dict(zip(["item_id", "category", "price"], dims, strict=True))
    inputs = inputs_of(**changes)
    widths = [inputs.items.weight.shape[1], inputs.tables["category"].weight.shape[1]]
    price = inputs.numbers["feature_price"](torch.zeros(1, 1, 1))
    assert [*widths, price.shape[2]] == dims


@pytest.mark.parametrize(
    ("n_values", "multiplier", "dim"),
    [(0, 2, 2), (1, 2, 2), (16, 2, 4), (17, 2, 5), (10_000, 2, 20), (16, 0.5, 1), (81, 7, 21)],
)
def test_a_categorical_has_the_fourth_root_of_its_values_times_the_multiplier(
    n_values, multiplier, dim
):
    config = model_config(embedding_multiplier=multiplier)
    assert vector_dims(config, {"category": n_values}, {})["category"] == dim


def test_soft_one_hot_against_numpy():
    inputs = inputs_of(soft_one_hot=4, number_dim=5)
    number = inputs.numbers["feature_price"]
    given = np.linspace(-3, 3, 7)
    found = number(torch.tensor(given, dtype=torch.float32).reshape(1, 7, 1))[0]
    weight, bias = (p.detach().numpy()[..., None].reshape(4, 1) for p in number.choose.parameters())
    scores = np.exp(weight @ given[None] + bias)  # [4, 7]
    wanted = (scores / scores.sum(0)).T @ number.vectors.detach().numpy()
    np.testing.assert_allclose(found.detach().numpy(), wanted, rtol=1e-5, atol=1e-6)


def test_each_vector_has_a_layer_norm_and_a_bare_number_none():
    inputs = inputs_of(feature_norm=True)
    assert set(inputs.norms) == {"feature_item_id", "feature_category"}
    vectors = {
        "item_id": torch.tensor([[[1.0, 3.0] * 8]]),
        "category": torch.tensor([[[0.0, 1.0, 5.0]]]),
        "price": torch.tensor([[[7.0]]]),
    }
    merged = inputs._merged(dict(vectors))[0, 0].tolist()
    assert merged[:16] == pytest.approx([-1, 1] * 8, abs=1e-4)
    std = (14 / 3) ** 0.5  # of 0, 1, 5 around 2
    assert merged[16:19] == pytest.approx([-2 / std, -1 / std, 3 / std], abs=1e-4)
    assert merged[19] == 7
    assert set(inputs_of(feature_norm=True, number_dim=2).norms) > {"feature_price"}
    assert "feature_price" not in inputs_of(feature_norm=True, number_dim=1).norms


NUMBERS = [
    {},
    {"number_dim": 1},
    {"number_dim": 4},
    {"number_dim": 4, "soft_one_hot": 3},
    {"merge": "elementwise"},
    {"merge": "elementwise", "soft_one_hot": 3},
]


@pytest.mark.parametrize("number", NUMBERS, ids=str)
@pytest.mark.parametrize("norm", [False, True])
def test_a_number_changes_the_scores_with_and_without_norms(number, norm):
    """The layer norm of Transformers4Rec made a constant of every scalar."""
    model = tiny_model(feature_norm=norm, **number)
    score = model.scorer(torch.arange(2, 32))
    columns = columns_of(torch.tensor([[3, 4, 5, 0]]))
    others = columns | {"price": columns["price"] * 3}
    n_known = torch.tensor([3])
    assert not torch.allclose(score(columns, n_known), score(others, n_known), atol=1e-6)


ACTIVATIONS = {
    "none": lambda x: x,
    "tanh": torch.tanh,
    "relu": torch.relu,
    "gelu": torch.nn.functional.gelu,
}


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_an_activation_follows_the_projection(activation):
    made = projection(3, 2, activation)
    given = torch.randn(5, 3, generator=torch.Generator().manual_seed(1)) * 3
    wanted = ACTIVATIONS[activation](given @ made.weight.T + made.bias)
    torch.testing.assert_close(made(given), wanted)


@pytest.mark.parametrize("activation", ["tanh", "relu", "gelu"])
def test_an_activation_needs_a_projection_where_sizes_are_equal(activation):
    """As in Transformers4Rec; the tied output is activated too."""
    inputs = inputs_of(categoricals=(), numbers=(), activation=activation)
    assert inputs.project.weight.shape == (16, 16)
    model = tiny_model(activation=activation)
    assert model.project_out.weight.shape == (16, 16)
    hidden = torch.randn(4, 16)
    wanted = ACTIVATIONS[activation](
        torch.nn.functional.linear(hidden, *model.project_out.parameters())
    )
    torch.testing.assert_close(model.project_out(hidden), wanted)


def test_tables_have_their_own_std():
    inputs = inputs_of(n_items=3000, item_init_std=0.1, feature_init_std=0.7)
    inputs.grow({"item_id": 3000, "category": 3000})
    assert inputs.items.weight.std().item() == pytest.approx(0.1, rel=0.05)
    assert inputs.tables["category"].weight.std().item() == pytest.approx(0.7, rel=0.05)


def test_input_dropout_of_merged_vectors_in_training_only():
    inputs = inputs_of(merge="elementwise", input_dropout=0.5)
    columns = {name: values.repeat(50, 10) for name, values in COLUMNS.items()}
    exact = encoded(inputs, columns)
    torch.manual_seed(0)
    dropped = inputs.train()(columns, inputs.items(columns["item_id"])).detach()
    is_zero = (dropped == 0) & (exact != 0)
    assert is_zero[exact != 0].float().mean().item() == pytest.approx(0.5, abs=0.05)
    kept = (dropped != 0).nonzero(as_tuple=True)
    torch.testing.assert_close(dropped[kept], 2 * exact[kept])


def test_a_frozen_table_does_not_learn_but_its_unknown_vector_does():
    inputs = inputs_of(freeze_items=True)
    inputs.grow({"item_id": 9, "category": 3})
    assert not inputs.items.weight.requires_grad
    assert inputs.items.unknown.requires_grad
    assert inputs.tables["category"].weight.requires_grad


def test_past_events_have_a_vector_added():
    inputs = inputs_of(past_length=3)
    with torch.no_grad():
        inputs.past.copy_(torch.arange(16.0))
    is_past = torch.tensor([[1, 1, 0, 0]])
    without, with_past = encoded(inputs), encoded(inputs, COLUMNS | {"_is_past": is_past})
    torch.testing.assert_close(with_past - without, torch.arange(16.0) * is_past[..., None])


@pytest.mark.parametrize(("past_length", "learns"), [(0, False), (2, True)])
def test_that_vector_learns_only_with_past_events(past_length, learns):
    assert inputs_of(past_length=past_length).past.requires_grad == learns


def test_the_age_of_an_unknown_item_counts_as_unknown():
    """A window file has the age of an item that the model, like `recommend`, does not know."""
    model = NextItemModel(
        model_config(),
        task_config(),
        loss_config(),
        categoricals={"type": 3},  # a name that no module may have
        numbers={"age": "item_age"},
        max_length=8,
        seed=1,
    )
    model.grow({"item_id": 5, "type": 3})
    score = model.scorer(torch.arange(2, 7))
    items, types = torch.tensor([[3, 30, 0]]), torch.tensor([[2, 3, 0]])

    def scored(known: float, unknown: float) -> torch.Tensor:
        ages = torch.tensor([[known, unknown, 0.0]])
        return score({"item_id": items, "type": types, "age": ages}, torch.tensor([2]))

    assert torch.equal(scored(0.1, 0.0), scored(0.1, 0.7))
    assert not torch.equal(scored(0.1, 0.0), scored(0.4, 0.0))


SESSIONS = [[2, 3, 4, 5, 6, 7], [8, 9, 10, 11], [12, 13], []]


@pytest.mark.parametrize("changes", [{"swap_noise": 0.9}, {"unknown_rate": 0.9}], ids=str)
def test_noise_in_training_only(changes):
    items, lengths = padded(SESSIONS)
    given = columns_of(items), lengths, step_random(items)
    noisy, clean = tiny_model(**changes), tiny_model()
    assert noisy.train()(*given)[0] != clean.train()(*given)[0]
    assert noisy.eval()(*given)[0] == clean.eval()(*given)[0]
    assert torch.equal(items, padded(SESSIONS)[0])


class TestSwapNoise:
    def test_by_hand(self):
        """Items with a number below p become the item of the batch that another number picks."""
        items, _ = padded([[11, 12, 13], [21, 22]])

        class Given(StepRandom):
            def uniform(self, purpose):
                numbers = {
                    "is_swapped": [[0.1, 0.5, 0.29], [0.3, 0.0, 0.0]],
                    "swapped_for": [[0.99, 0.0, 0.2], [0.0, 0.59, 0.9]],
                }
                return torch.tensor(numbers[purpose])

        rng = Given(**vars(step_random(items)))
        # The batch is 11 12 13 21 22: .99 * 5 is its last, .2 * 5 its second, .59 * 5 its third.
        assert swap_noise(items, rng, 0.3).tolist() == [[22, 12, 12], [21, 13, 0]]

    @given(
        st.lists(st.lists(st.integers(1, 50), max_size=6), min_size=1, max_size=8).filter(any),
        st.floats(0, 0.99),
        st.integers(0, 99),
    )
    def test_padding_is_neither_replaced_nor_sampled(self, sessions, probability, seed):
        items, lengths = padded(sessions)
        found = swap_noise(items, step_random(items, seed), probability)
        is_event = torch.arange(items.shape[1]) < lengths[:, None]
        assert torch.equal(found > 0, is_event)
        assert set(found[is_event].tolist()) <= set(items[is_event].tolist())

    @pytest.mark.parametrize(("architecture", "task"), [("gpt2", "clm"), ("bert", "mlm")])
    def test_labels_are_not_replaced(self, architecture, task):
        items, lengths = padded(SESSIONS)
        model = tiny_model(architecture, task, swap_noise=0.99, unknown_rate=0.5)
        seen, found = [], []
        model.inputs.register_forward_pre_hook(lambda _, given: seen.append(given[0]["item_id"]))
        training_positions = model.task.training_positions

        def spied(*given):
            positions, labels = training_positions(*given)
            found.append(labels)
            return positions, labels

        object.__setattr__(model.task, "training_positions", spied)
        model.train()(columns_of(items), lengths, step_random(items))
        assert not torch.equal(seen[0], items[:, : seen[0].shape[1]])
        assert torch.equal(found[0], training_positions(items, lengths, step_random(items))[1])
        assert torch.equal(items, padded(SESSIONS)[0])


class TestHiddenNewItems:
    def test_only_new_items_are_hidden_at_the_probability(self):
        items = torch.tensor([[2] * 30 + [5] * 10] * 500)
        found = hide_new_items(items, 3, step_random(items), 0.2)
        assert torch.equal(found[:, :30], items[:, :30])
        assert set(found[:, 30:].unique().tolist()) == {1, 5}
        assert (found[:, 30:] == 1).float().mean().item() == pytest.approx(0.2, abs=0.02)

    @pytest.mark.parametrize(("changes", "is_hidden"), [({}, True), ({"catalogue": "full"}, False)])
    def test_items_of_earlier_fits_and_of_a_full_catalogue_are_read(self, changes, is_hidden):
        items, lengths = padded(SESSIONS)
        model = tiny_model(unknown_rate=0.99, **changes).train()
        sizes = {name: table.n_rows for name, table in model.inputs.tables.items()}
        read = []
        model.inputs.register_forward_pre_hook(lambda _, given: read.append(given[0]["item_id"]))
        model(columns_of(items), lengths, step_random(items))
        assert (read[-1] == 1).any() == is_hidden
        model.grow(sizes)  # another window, without new items
        model(columns_of(items), lengths, step_random(items))
        assert not (read[-1] == 1).any()
