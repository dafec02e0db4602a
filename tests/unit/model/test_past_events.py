"""Events before the session: read, told from its own, never masked, never asked."""

from functools import cache

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from support.tiny_settings import columns_of, draws_for, every_body, padded, tiny_model

LONGEST = 8
"""Positions of a tiny model, the target's included."""

pasts = st.lists(
    st.tuples(st.integers(0, 4), st.integers(1, 3)), min_size=1, max_size=5
)  # events of the past, and of the session before its target


@cache
def model_of(architecture, task):
    model = tiny_model(architecture, task, past_length=4)
    with torch.no_grad():
        model.inputs.past.normal_(generator=torch.Generator().manual_seed(1))
    return model


def noise(n_rows, n_past, seed):
    """Columns of random events, of which the first `n_past` of each row are the past."""
    draw = torch.Generator().manual_seed(seed)
    items = torch.randint(2, 32, (n_rows, LONGEST), generator=draw)
    is_past = torch.arange(LONGEST) < torch.as_tensor(n_past)[:, None]
    return columns_of(items) | {"_is_past": is_past.long()}


def spliced(first, second, is_first):
    return {name: torch.where(is_first, first[name], second[name]) for name in first}


@every_body
@settings(max_examples=10)
@given(pasts, st.integers(0, 999))
def test_the_target_and_all_behind_it_change_no_score(architecture, task, rows, seed):
    n_past = torch.tensor([past for past, _ in rows])
    n_known = torch.tensor([past + known for past, known in rows])
    scores = model_of(architecture, task).scorer(torch.arange(2, 32))
    columns, others = (noise(len(rows), n_past, s) for s in (seed, seed + 1))
    is_known = torch.arange(LONGEST) < n_known[:, None]
    found = scores(columns, n_known)
    assert torch.equal(found, scores(spliced(columns, others, is_known), n_known))


@every_body
def test_each_event_of_the_past_matters_and_that_it_is_past(architecture, task):
    scores = model_of(architecture, task).scorer(torch.arange(2, 32))
    n_known = torch.tensor([5])
    columns = noise(1, [3], seed=0)
    found = scores(columns, n_known)
    for place in range(3):
        is_kept = torch.arange(LONGEST) != place
        others = spliced(columns, noise(1, [3], seed=5), is_kept)
        assert not torch.allclose(found, scores(others, n_known), atol=1e-6)
    as_one_session = columns | {"_is_past": torch.zeros(1, LONGEST, dtype=torch.long)}
    assert not torch.allclose(found, scores(as_one_session, n_known), atol=1e-6)


@every_body
def test_a_session_without_a_past_scores_as_one_of_a_user_unknown(architecture, task):
    """Where others of the batch have one, and where the column is not there."""
    scores = model_of(architecture, task).scorer(torch.arange(2, 32))
    columns, n_known = noise(3, [0, 3, 0], seed=2), torch.tensor([3, 6, 2])
    together = scores(columns, n_known)
    for row in (0, 2):
        alone = {name: values[row : row + 1] for name, values in columns.items()}
        del alone["_is_past"]
        torch.testing.assert_close(
            scores(alone, n_known[row : row + 1]), together[row : row + 1], rtol=1e-5, atol=1e-5
        )


@every_body
@settings(max_examples=15)
@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(2, 4)), min_size=1, max_size=5),
    st.integers(0, 99),
)
def test_no_event_of_the_past_is_masked_or_asked(architecture, task, rows, seed):
    sessions = [list(range(2, 2 + past + own)) for past, own in rows]
    items, lengths = padded(sessions)
    n_past = torch.tensor([past for past, _ in rows])
    draws = draws_for(items, seed, past=n_past)
    question, answers = model_of(architecture, task).task.training_question(items, lengths, draws)
    is_past = torch.arange(question.is_asked.shape[1]) < n_past[:, None]
    assert not (question.is_asked & is_past).any()
    assert not (question.is_masked & is_past).any()
    # Items count up along a row, so an answer tells its position; every session has one.
    asked_rows, _ = question.is_asked.nonzero(as_tuple=True)
    assert (answers - 2 >= n_past[asked_rows]).all()
    assert set(asked_rows.tolist()) == set(range(len(rows)))
    if question.is_hidden is not None:
        assert not (question.is_hidden & is_past[:, None, :]).any()


@every_body
def test_the_loss_counts_what_is_the_sessions_own(architecture, task):
    """A batch of two halves, one with a past: each half's loss adds up, whoever has it."""
    items, lengths = padded([[2, 3, 4, 5, 6], [7, 8, 9], [10, 11, 12, 13]])
    n_past = torch.tensor([2, 0, 1])
    is_past = torch.arange(items.shape[1]) < n_past[:, None]
    columns = columns_of(items) | {"_is_past": is_past.long()}
    draws = draws_for(items, past=n_past)
    model = model_of(architecture, task).train()
    whole = model(columns, lengths, draws)
    parts = []
    for rows in (torch.tensor([0, 2]), torch.tensor([1])):
        own = {name: values[rows] for name, values in columns.items()}
        parts.append(model(own, lengths[rows], draws.part(rows, items.shape[1])))
    sums = [sum(values) for values in zip(*parts, strict=True)]
    torch.testing.assert_close(list(whole), sums, rtol=1e-5, atol=1e-5)
    if task == "clm":
        assert whole[1].item() == int((lengths - n_past - 1).sum())
