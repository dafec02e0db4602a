"""Vectors of events: by hand, against an oracle, and that no feature is lost on the way."""

import numpy as np
import pytest
import torch

from dayahead.model.inputs import EventInputs, embedding_dim, vector_dims
from dayahead.model.projection import projection
from support.tiny_settings import columns_of, model_config, tiny_model

COLUMNS = {
    "item_id": torch.tensor([[2, 3, 1, 0]]),
    "category": torch.tensor([[2, 3, 99, 0]]),
    "price": torch.tensor([[0.5, -2.0, 1.0, 0.0]]),
}


def inputs_of(categoricals=("category",), numbers=("price",), n_items=5, **changes):
    """Inputs that read a category of 3 values and a price."""
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


def written(inputs, columns=COLUMNS):
    return inputs.eval()(columns, inputs.items(columns["item_id"])).detach()


def rows(table, *places):
    """Rows of a table; None is padding's zeros."""
    return torch.stack(
        [
            torch.zeros(table.weight.shape[1]) if place is None else table.weight[place].detach()
            for place in places
        ]
    )


def test_vectors_side_by_side_by_hand():
    inputs = inputs_of(embedding_multiplier=1.0)
    item = rows(inputs.items, 0, 1, None, None)
    category = rows(inputs.tables["category"], 0, 1, None, None)
    wanted = torch.cat([item, category, COLUMNS["price"][0][:, None]], dim=1)
    assert wanted.shape == (4, 16 + 2 + 1)
    weight, bias = inputs.project.weight.detach(), inputs.project.bias.detach()
    torch.testing.assert_close(written(inputs)[0], wanted @ weight.T + bias)


def test_vectors_merged_element_by_element_by_hand():
    inputs = inputs_of(merge="elementwise")
    item = rows(inputs.items, 0, 1, None, None)
    category = rows(inputs.tables["category"], 0, 1, None, None)
    number = inputs.numbers["feature_price"]
    price = COLUMNS["price"][0][:, None] @ number.weight.detach().T + number.bias.detach()
    torch.testing.assert_close(written(inputs)[0], item * (1 + category + price))
    assert isinstance(inputs.project, torch.nn.Identity)


def test_element_by_element_without_others_is_the_item():
    inputs = inputs_of(categoricals=(), numbers=(), merge="elementwise")
    assert torch.equal(written(inputs)[0], rows(inputs.items, 0, 1, None, None))


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
def test_an_embedding_has_so_many_times_the_fourth_root_of_its_values(n_values, multiplier, dim):
    assert embedding_dim(n_values, multiplier) == dim


def test_a_soft_choice_against_numpy():
    inputs = inputs_of(soft_one_hot=4, number_dim=5)
    number = inputs.numbers["feature_price"]
    given = np.linspace(-3, 3, 7)
    found = number(torch.tensor(given, dtype=torch.float32).reshape(1, 7, 1))[0]
    weight, bias = (p.detach().numpy()[..., None].reshape(4, 1) for p in number.choose.parameters())
    scores = np.exp(weight @ given[None] + bias)  # [4, 7]
    wanted = (scores / scores.sum(0)).T @ number.vectors.detach().numpy()
    np.testing.assert_allclose(found.detach().numpy(), wanted, rtol=1e-5, atol=1e-6)


def test_a_norm_for_each_vector_and_none_for_a_bare_number():
    inputs = inputs_of(feature_norm=True)
    assert set(inputs.norms) == {"feature_item_id", "feature_category"}
    vectors = {
        "item_id": torch.tensor([[[1.0, 3.0] * 8]]),
        "category": torch.tensor([[[0.0, 1.0, 5.0]]]),
        "price": torch.tensor([[[7.0]]]),
    }
    merged = inputs._merged(dict(vectors))[0, 0].tolist()
    assert merged[:16] == pytest.approx([-1, 1] * 8, abs=1e-4)
    spread = (14 / 3) ** 0.5  # of 0, 1, 5 around 2
    assert merged[16:19] == pytest.approx([-2 / spread, -1 / spread, 3 / spread], abs=1e-4)
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
    """The predecessor's norm made a constant of every scalar."""
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
def test_an_activation_brings_its_projection_where_sizes_are_equal(activation):
    """As in the predecessor; the tied output is activated too."""
    inputs = inputs_of(categoricals=(), numbers=(), activation=activation)
    assert inputs.project.weight.shape == (16, 16)
    model = tiny_model(activation=activation)
    assert model.project_out.weight.shape == (16, 16)
    hidden = torch.randn(4, 16)
    wanted = ACTIVATIONS[activation](
        torch.nn.functional.linear(hidden, *model.project_out.parameters())
    )
    torch.testing.assert_close(model.project_out(hidden), wanted)


def test_without_need_there_is_no_projection():
    assert isinstance(projection(4, 4, "none"), torch.nn.Identity)


def test_tables_have_spreads_of_their_own():
    inputs = inputs_of(n_items=3000, item_init_std=0.1, feature_init_std=0.7)
    inputs.grow({"item_id": 3000, "category": 3000})
    assert inputs.items.weight.std().item() == pytest.approx(0.1, rel=0.05)
    assert inputs.tables["category"].weight.std().item() == pytest.approx(0.7, rel=0.05)


def test_input_dropout_takes_from_what_is_merged_in_training_only():
    inputs = inputs_of(merge="elementwise", input_dropout=0.5)
    columns = {name: values.repeat(50, 10) for name, values in COLUMNS.items()}
    whole = written(inputs, columns)
    torch.manual_seed(0)
    dropped = inputs.train()(columns, inputs.items(columns["item_id"])).detach()
    is_zero = (dropped == 0) & (whole != 0)
    assert is_zero[whole != 0].float().mean().item() == pytest.approx(0.5, abs=0.05)
    kept = (dropped != 0).nonzero(as_tuple=True)
    torch.testing.assert_close(dropped[kept], 2 * whole[kept])


def test_a_frozen_table_stays_and_the_vector_of_the_unknown_learns():
    inputs = inputs_of(freeze_items=True)
    inputs.grow({"item_id": 9, "category": 3})
    assert not inputs.items.weight.requires_grad
    assert inputs.items.unknown.requires_grad
    assert inputs.tables["category"].weight.requires_grad


def test_events_of_the_past_have_a_vector_added():
    inputs = inputs_of(past_length=3)
    with torch.no_grad():
        inputs.past.copy_(torch.arange(16.0))
    is_past = torch.tensor([[1, 1, 0, 0]])
    without, with_past = written(inputs), written(inputs, COLUMNS | {"_is_past": is_past})
    torch.testing.assert_close(with_past - without, torch.arange(16.0) * is_past[..., None])


@pytest.mark.parametrize(("past_length", "learns"), [(0, False), (2, True)])
def test_that_vector_learns_only_where_a_past_is_read(past_length, learns):
    assert inputs_of(past_length=past_length).past.requires_grad == learns
