"""No score depends on the future or on other sessions, and past events are context only."""

from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dayahead.config.baselines import BASELINES, MEMORY
from dayahead.model.output_layer import Scorer
from support.tiny_settings import (
    BACKBONES,
    columns_of,
    counted,
    every_backbone,
    padded,
    step_random,
    tiny_model,
)

N_ITEMS = 30
CANDIDATES = torch.arange(2, 2 + N_ITEMS)
LONGEST = 8
"""Positions of a tiny model, the target's included."""
ONE_LIST = {"popularity"}  # baselines that do not read the session

SCORERS = [*("/".join(pair) for pair in BACKBONES), *BASELINES, MEMORY]
every_scorer = pytest.mark.parametrize("name", SCORERS)


@cache
def scorer_of(name: str) -> Scorer:
    if "/" in name:
        return tiny_model(*name.split("/"), n_items=N_ITEMS).scorer(CANDIDATES)
    generator = torch.Generator().manual_seed(5)
    sessions = torch.randint(2, 2 + N_ITEMS, (50, 6), generator=generator).tolist()
    return counted(name, sessions, N_ITEMS).scorer(CANDIDATES)


@st.composite
def batches(draw, min_sessions=1):
    """Known events per session, and a seed; the last session is the longest possible."""
    known = draw(st.lists(st.integers(1, LONGEST - 1), min_size=min_sessions - 1, max_size=5))
    return torch.tensor([*known, LONGEST - 1]), draw(st.integers(0, 2**31))


def noise_columns(n_sessions: int, seed: int) -> dict[str, torch.Tensor]:
    """Items (some of them unknown) and side features, each at random."""
    generator = torch.Generator().manual_seed(seed)
    shape = (n_sessions, LONGEST)
    return {
        "item_id": torch.randint(1, 5 + N_ITEMS, shape, generator=generator),
        "category": torch.randint(0, 6, shape, generator=generator),
        "price": torch.randn(shape, generator=generator),
        "event_time": torch.randint(0, 10**9, shape, generator=generator).sort(1).values,
    }


def spliced(first, second, is_first):
    return {name: torch.where(is_first, first[name], second[name]) for name in first}


@every_scorer
@settings(max_examples=25)
@given(batches())
def test_no_score_depends_on_the_target_or_later_events(name, batch):
    n_known, seed = batch
    scores, columns = scorer_of(name), noise_columns(len(n_known), seed)
    is_known = torch.arange(LONGEST) < n_known[:, None]
    others = spliced(columns, noise_columns(len(n_known), seed + 1), is_known)
    assert torch.equal(scores(columns, n_known), scores(others, n_known))


@every_scorer
@settings(max_examples=25)
@given(batches(min_sessions=2), st.integers(1, LONGEST - 1))
def test_a_session_changes_no_other_at_a_fixed_shape(name, batch, other_length):
    n_known, seed = batch
    scores, columns = scorer_of(name), noise_columns(len(n_known), seed)
    is_other = torch.arange(len(n_known))[:, None] > 0
    others = spliced(columns, noise_columns(len(n_known), seed + 1), is_other)
    other_known = torch.cat([torch.tensor([other_length]), n_known[1:]])
    assert torch.equal(scores(columns, n_known)[1:], scores(others, other_known)[1:])


@every_scorer
@settings(max_examples=25)
@given(batches())
def test_a_session_scores_alone_as_in_a_batch_and_without_padding(name, batch):
    n_known, seed = batch
    scores, columns = scorer_of(name), noise_columns(len(n_known), seed)
    together = scores(columns, n_known)
    n = int(n_known[0])
    alone = {key: values[:1, : n + 1] for key, values in columns.items()}
    torch.testing.assert_close(scores(alone, n_known[:1]), together[:1], rtol=1e-5, atol=1e-5)


@every_scorer
def test_the_known_events_do_matter(name):
    """The tests above would pass for a model that reads nothing."""
    n_known = torch.full((20,), 4)
    items = torch.randint(2, 2 + N_ITEMS, (20, 5), generator=torch.Generator().manual_seed(3))
    scores = scorer_of(name)(columns_of(items), n_known)
    differ = (scores[1:] != scores[:1]).any(1)
    assert differ.any() == (name not in ONE_LIST), "one list for all? Then name it in ONE_LIST"


@every_backbone
@pytest.mark.parametrize("column", ["item_id", "category", "price"])
@pytest.mark.parametrize("position", [0, 2])
def test_every_column_of_every_known_event_is_read(architecture, task, column, position):
    columns = columns_of(torch.tensor([[3, 4, 5, 0]]))
    scores = scorer_of(f"{architecture}/{task}")
    before = scores(columns, torch.tensor([3]))
    value = columns[column][0, position]
    columns[column][0, position] = 2 if column == "price" else value % 3 + 2
    assert not torch.allclose(before, scores(columns, torch.tensor([3])))


@every_backbone
def test_scores_are_float32_and_without_dropout(architecture, task):
    model = tiny_model(architecture, task, dropout=0.5, input_dropout=0.5)
    model.train()
    scores = model.scorer(CANDIDATES)
    columns = columns_of(torch.tensor([[3, 4, 5, 0]]))
    first = scores(columns, torch.tensor([3]))
    assert first.dtype == torch.float32
    assert not first.requires_grad
    assert torch.equal(first, scores(columns, torch.tensor([3])))


@cache
def model_with_past(architecture, task):
    model = tiny_model(architecture, task, past_length=4)
    with torch.no_grad():
        model.inputs.past.normal_(generator=torch.Generator().manual_seed(1))
    return model


def columns_with_past(n_rows, n_past, seed):
    """Columns of random events, of which the first `n_past` of each row are the past."""
    generator = torch.Generator().manual_seed(seed)
    items = torch.randint(2, 32, (n_rows, LONGEST), generator=generator)
    is_past = torch.arange(LONGEST) < torch.as_tensor(n_past)[:, None]
    return columns_of(items) | {"_is_past": is_past.long()}


class TestPastEvents:
    @every_backbone
    @settings(max_examples=10)
    @given(
        st.lists(st.tuples(st.integers(0, 4), st.integers(1, 3)), min_size=1, max_size=5),
        st.integers(0, 999),
    )
    def test_no_score_depends_on_the_target_or_later_events(self, architecture, task, rows, seed):
        n_past = torch.tensor([past for past, _ in rows])
        n_known = torch.tensor([past + known for past, known in rows])
        scores = model_with_past(architecture, task).scorer(CANDIDATES)
        columns, others = (columns_with_past(len(rows), n_past, s) for s in (seed, seed + 1))
        is_known = torch.arange(LONGEST) < n_known[:, None]
        found = scores(columns, n_known)
        assert torch.equal(found, scores(spliced(columns, others, is_known), n_known))

    @every_backbone
    def test_each_past_event_matters_and_that_it_is_past(self, architecture, task):
        scores = model_with_past(architecture, task).scorer(CANDIDATES)
        n_known = torch.tensor([5])
        columns = columns_with_past(1, [3], seed=0)
        found = scores(columns, n_known)
        for position in range(3):
            is_same = torch.arange(LONGEST) != position
            others = spliced(columns, columns_with_past(1, [3], seed=5), is_same)
            assert not torch.allclose(found, scores(others, n_known), atol=1e-6)
        as_one_session = columns | {"_is_past": torch.zeros(1, LONGEST, dtype=torch.long)}
        assert not torch.allclose(found, scores(as_one_session, n_known), atol=1e-6)

    @every_backbone
    def test_a_session_without_past_scores_as_without_the_column(self, architecture, task):
        scores = model_with_past(architecture, task).scorer(CANDIDATES)
        columns, n_known = columns_with_past(3, [0, 3, 0], seed=2), torch.tensor([3, 6, 2])
        together = scores(columns, n_known)
        for row in (0, 2):
            alone = {name: values[row : row + 1] for name, values in columns.items()}
            del alone["_is_past"]
            own = scores(alone, n_known[row : row + 1])
            torch.testing.assert_close(own, together[row : row + 1], rtol=1e-5, atol=1e-5)

    @every_backbone
    @settings(max_examples=15)
    @given(
        st.lists(st.tuples(st.integers(0, 4), st.integers(2, 4)), min_size=1, max_size=5),
        st.integers(0, 99),
    )
    def test_no_past_event_is_masked_or_predicted(self, architecture, task, rows, seed):
        items, lengths = padded([list(range(2, 2 + past + own)) for past, own in rows])
        n_past = torch.tensor([past for past, _ in rows])
        rng = step_random(items, seed, past=n_past)
        chosen = model_with_past(architecture, task).task
        positions, labels = chosen.training_positions(items, lengths, rng)
        is_past = torch.arange(positions.is_predicted.shape[1]) < n_past[:, None]
        assert not (positions.is_predicted & is_past).any()
        assert not (positions.is_masked & is_past).any()
        # Items count up along a row, so a label gives its position; every session has one.
        predicted_rows, _ = positions.is_predicted.nonzero(as_tuple=True)
        assert (labels - 2 >= n_past[predicted_rows]).all()
        assert set(predicted_rows.tolist()) == set(range(len(rows)))
        if positions.is_hidden is not None:
            assert not (positions.is_hidden & is_past[:, None, :]).any()
