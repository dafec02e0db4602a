"""Tables that grow: a row's first value never depends on when it came."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dayahead.model.embeddings import GrowingEmbedding
from support.tiny_settings import tiny_model


def grown(*sizes, seed=1, dim=5):
    table = GrowingEmbedding(dim, std=0.5, seed=seed)
    for size in sizes:
        table.grow(size)
    return table


@given(st.lists(st.integers(0, 40), min_size=1, max_size=5))
def test_the_way_to_a_size_does_not_matter(sizes):
    by_steps, at_once = grown(*sizes), grown(max(sizes))
    assert torch.equal(by_steps.weight, at_once.weight)


def test_rows_depend_on_the_seed_and_spread_as_wished():
    first, other = grown(5000, seed=1).weight, grown(5000, seed=2).weight
    assert not torch.equal(first, other)
    assert first.std().item() == pytest.approx(0.5, rel=0.02)
    assert first.mean().item() == pytest.approx(0, abs=0.02)
    assert len(first.unique(dim=0)) == 5000


def test_tables_of_one_model_start_from_different_rows():
    model = tiny_model(tie_weights=False)
    assert not torch.equal(model.inputs.items.weight, model.output_items.weight)


def test_old_rows_stay_as_they_were_learned():
    table = grown(3)
    with torch.no_grad():
        table.weight += 1
    learned = table.weight.detach().clone()
    table.grow(10)
    assert torch.equal(table.weight[:3], learned)
    assert torch.equal(table.weight[3:], grown(10).weight[3:])


def test_a_table_never_shrinks():
    table = grown(10)
    before = table.weight
    table.grow(4)
    assert table.weight is before


def test_the_global_random_state_is_left_alone():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    grown(10)
    assert torch.equal(before, torch.get_rng_state())


def test_lookups_of_padding_unknown_held_and_not_yet_held():
    table = grown(3)
    with torch.no_grad():
        table.unknown.fill_(7)
    found = table(torch.tensor([[0, 1, 2, 4, 5, 99]]))[0]
    assert found[0].eq(0).all()
    assert found[1].eq(7).all()
    assert torch.equal(found[2], table.weight[0])
    assert torch.equal(found[3], table.weight[2])
    assert found[4:].eq(7).all()


def test_only_rows_looked_up_learn():
    table = grown(3)
    table(torch.tensor([[0, 1, 3, 9]])).sum().backward()
    assert table.weight.grad.sum(1).tolist() == [0, 5, 0]
    assert table.unknown.grad.tolist() == [2] * 5
