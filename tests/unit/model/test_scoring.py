"""No score knows what comes after, or what stands beside, its session: every body and counter."""

from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dayahead.model.scoring import Scorer
from support.tiny_settings import BODIES, columns_of, counted, tiny_model

N_ITEMS = 30
LONGEST = 7
"""Known events; the model's longest session is one more."""

SCORERS = [*("/".join(body) for body in BODIES), "popularity", "transitions"]
every_scorer = pytest.mark.parametrize("name", SCORERS)


@cache
def scorer_of(name: str) -> Scorer:
    candidates = torch.arange(2, 2 + N_ITEMS)
    if "/" in name:
        return tiny_model(*name.split("/"), n_items=N_ITEMS).scorer(candidates)
    draw = torch.Generator().manual_seed(5)
    sessions = torch.randint(2, 2 + N_ITEMS, (50, 6), generator=draw).tolist()
    return counted(name, sessions, N_ITEMS).scorer(candidates)


@st.composite
def batches(draw, min_sessions=1):
    """Known events per session, and a seed; the last session is the longest possible."""
    known = draw(st.lists(st.integers(1, LONGEST), min_size=min_sessions - 1, max_size=5))
    return torch.tensor([*known, LONGEST]), draw(st.integers(0, 2**31))


def noise_columns(n_sessions: int, n_steps: int, seed: int) -> dict[str, torch.Tensor]:
    """Items (some of them unknown or not held) and side features, each drawn on its own."""
    draw = torch.Generator().manual_seed(seed)
    shape = (n_sessions, n_steps)
    return {
        "item_id": torch.randint(1, 5 + N_ITEMS, shape, generator=draw),
        "category": torch.randint(0, 6, shape, generator=draw),
        "price": torch.randn(shape, generator=draw),
    }


def spliced(before, after, is_before):
    return {name: torch.where(is_before, before[name], after[name]) for name in before}


@every_scorer
@settings(max_examples=25)
@given(batches())
def test_the_target_and_all_behind_it_change_no_score(name, batch):
    n_known, seed = batch
    scores = scorer_of(name)
    columns = noise_columns(len(n_known), LONGEST + 1, seed)
    is_known = torch.arange(LONGEST + 1) < n_known[:, None]
    others = spliced(columns, noise_columns(len(n_known), LONGEST + 1, seed + 1), is_known)
    assert torch.equal(scores(columns, n_known), scores(others, n_known))


@every_scorer
@settings(max_examples=25)
@given(batches(min_sessions=2), st.integers(1, LONGEST))
def test_a_session_changes_no_other_at_a_fixed_shape(name, batch, other_length):
    n_known, seed = batch
    scores = scorer_of(name)
    columns = noise_columns(len(n_known), LONGEST + 1, seed)
    is_other = torch.arange(len(n_known))[:, None] > 0
    others = spliced(columns, noise_columns(len(n_known), LONGEST + 1, seed + 1), is_other)
    other_known = torch.cat([torch.tensor([other_length]), n_known[1:]])
    assert torch.equal(scores(columns, n_known)[1:], scores(others, other_known)[1:])


@every_scorer
@settings(max_examples=25)
@given(batches())
def test_a_session_scores_alone_as_among_others_and_without_padding(name, batch):
    n_known, seed = batch
    scores = scorer_of(name)
    columns = noise_columns(len(n_known), LONGEST + 1, seed)
    together = scores(columns, n_known)
    n = int(n_known[0])
    alone = {key: values[:1, : n + 1] for key, values in columns.items()}
    torch.testing.assert_close(scores(alone, n_known[:1]), together[:1], rtol=1e-5, atol=1e-5)


@every_scorer
def test_the_events_known_do_matter(name):
    """The tests above would pass for a model that looks at nothing."""
    n_known = torch.full((20,), 4)
    items = torch.randint(2, 2 + N_ITEMS, (20, 5), generator=torch.Generator().manual_seed(3))
    scores = scorer_of(name)(columns_of(items), n_known)
    differ = (scores[1:] != scores[:1]).any(1)
    assert differ.any() == (name != "popularity")


@pytest.mark.parametrize(("architecture", "task"), BODIES)
@pytest.mark.parametrize("column", ["item_id", "category", "price"])
@pytest.mark.parametrize("place", [0, 2])
def test_every_column_of_every_known_event_is_read(architecture, task, column, place):
    columns = columns_of(torch.tensor([[3, 4, 5, 0]]))
    scores = scorer_of(f"{architecture}/{task}")
    before = scores(columns, torch.tensor([3]))
    columns[column][0, place] = 2 if column == "price" else columns[column][0, place] % 3 + 2
    assert not torch.allclose(before, scores(columns, torch.tensor([3])))


@pytest.mark.parametrize(("architecture", "task"), BODIES)
def test_scores_are_float32_and_dropout_is_off(architecture, task):
    model = tiny_model(architecture, task, dropout=0.5, input_dropout=0.5)
    model.train()
    scores = model.scorer(torch.arange(2, 32))
    columns = columns_of(torch.tensor([[3, 4, 5, 0]]))
    first = scores(columns, torch.tensor([3]))
    assert first.dtype == torch.float32
    assert torch.equal(first, scores(columns, torch.tensor([3])))
