"""Ranks of targets equal those of brute force for any batches and number of processes."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dayahead.core.errors import ScoreError
from dayahead.core.ragged import step_of_each
from dayahead.distributed.process import Process, Rank
from dayahead.distributed.sharding import WHOLE, Shard
from dayahead.model.model import Model
from dayahead.model.tasks import build_task
from dayahead.train.batches import LoadedBatches, Sessions, sorted_rows
from dayahead.train.evaluate import Offered, _synchronised_prefixes, evaluate
from dayahead.train.event_types import Targets
from dayahead.train.list_counts import Best
from support.tiny_settings import counted, task_config

CPU = torch.device("cpu")
ALONE = Process(Rank(0, 1), CPU)


@dataclass
class Remainders:
    """Scores an item by its distance from the last known item modulo 5, with many ties."""

    worst: float = 5.0
    shard = WHOLE
    session_scorer = Model.session_scorer

    def scorer(self, candidates, *, overwrites=False):
        def scores(columns, n_known):
            last = columns["item_id"].gather(1, (n_known - 1)[:, None])
            return self.worst - ((candidates - last) % 5).float()

        return scores


def sessions_of(lists):
    lengths = torch.tensor([0, *map(len, lists)])
    return Sessions({"item_id": torch.tensor([i for s in lists for i in s])}, lengths.cumsum(0))


def evaluated(
    lists, candidates, batch_size=3, process=ALONE, *, model=None, is_all=False, k=0, gone=None
):
    sessions = sessions_of(lists)
    batches = LoadedBatches(sessions, sorted_rows(sessions.lengths, batch_size), process.rank)
    offered = Offered(np.array(candidates, np.int32), gone)
    n_targets = np.array([len(session) - 1 if is_all else 1 for session in lists])
    return evaluate(model or Remainders(), batches, n_targets, offered, process, Best(k))


def brute_force(session, candidates, gone=()):
    *known, target = session
    scores = {item: 5 - (item - known[-1]) % 5 for item in candidates}
    known = {*known} - {*gone}
    scores = dict.fromkeys(known, -np.inf) | scores  # own items are candidates, but have no score
    if target not in scores:
        return 0
    candidates = scores
    not_worse = [item for item in candidates if scores[item] >= scores[target]]
    return len(not_worse)


many_sessions = st.lists(
    st.lists(st.integers(2, 20), min_size=2, max_size=5), min_size=1, max_size=9
)
some_candidates = st.sets(st.integers(2, 20)).map(sorted)


@given(many_sessions, some_candidates, st.integers(1, 10))
def test_ranks_equal_brute_force_for_any_batches(lists, candidates, batch_size):
    found = evaluated(lists, candidates, batch_size)
    assert found.targets.tolist() == [session[-1] for session in lists]
    assert found.ranks.tolist() == [brute_force(session, candidates) for session in lists]


@given(many_sessions, some_candidates, st.integers(1, 10))
def test_at_all_positions_each_prefix_is_ranked_like_a_session(lists, candidates, batch_size):
    found = evaluated(lists, candidates, batch_size, is_all=True)
    prefixes = [session[:end] for session in lists for end in range(2, len(session) + 1)]
    assert found.targets.tolist() == [prefix[-1] for prefix in prefixes]
    assert found.ranks.tolist() == [brute_force(prefix, candidates) for prefix in prefixes]
    ids = pa.chunked_array([[f"s{i}" for i in range(len(lists))]])
    n_targets = np.array([len(session) - 1 for session in lists])
    ranks = found.as_window_ranks(ids, Targets(n_targets, step_of_each(n_targets) + 1))
    pairs = [(f"s{i}", n) for i, session in enumerate(lists) for n in range(1, len(session))]
    assert [*zip(ranks.session_ids.to_pylist(), ranks.positions.tolist(), strict=True)] == pairs
    assert ranks.n_sessions == len(lists)


@given(many_sessions, some_candidates, st.sets(st.integers(2, 20)), st.integers(1, 24))
def test_an_own_item_that_is_withdrawn_is_no_candidate(lists, candidates, gone, n):
    """The table ends at an index below which all others are available."""
    candidates = [item for item in candidates if item not in gone]
    gone = {item for item in gone if item < n}
    flags = np.isin(np.arange(n), [*gone])
    found = evaluated(lists, candidates, is_all=True, gone=flags, k=4)
    prefixes = [session[:end] for session in lists for end in range(2, len(session) + 1)]
    assert found.ranks.tolist() == [brute_force(prefix, candidates, gone) for prefix in prefixes]
    model = counted("own", [[2, 3], [4, 5, 6]], n_items=20)
    for top in evaluated(lists, candidates, model=model, gone=flags, k=4).top_items.tolist():
        assert not gone & {*top}


def test_past_events_are_no_targets():
    """Two past events, then the session 5 6 7: at all positions 6 and 7 are targets."""
    items = torch.tensor([3, 4, 5, 6, 7, 8, 9])
    is_past = torch.tensor([1, 1, 0, 0, 0, 0, 0])
    sessions = Sessions({"item_id": items, "_is_past": is_past}, torch.tensor([0, 5, 7]))
    batches = LoadedBatches(sessions, sorted_rows(sessions.lengths, 4), ALONE.rank)
    every = Offered(np.arange(2, 10, dtype=np.int32))
    found = evaluate(Remainders(), batches, np.array([2, 1]), every, ALONE)
    assert found.targets.tolist() == [6, 7, 9]


@given(many_sessions, some_candidates)
def test_own_items_beyond_the_candidates_rank_where_a_baseline_puts_them(lists, candidates):
    """First of all, the latest item before the earlier ones; also those beyond the catalogue."""
    model = counted("own", [[2, 3], [4, 5, 6]], n_items=8)
    candidates = [item for item in candidates if item < 2 + 8]
    found = evaluated(lists, candidates, model=model, is_all=True, k=3)
    prefixes = [session[:end] for session in lists for end in range(2, len(session) + 1)]
    for prefix, rank, top in zip(prefixes, found.ranks, found.top_items, strict=True):
        *known, target = prefix
        own = list(dict.fromkeys(reversed(known)))
        if target in own:
            assert rank == own.index(target) + 1
        else:
            assert (rank > len(own)) == (target in candidates)
        assert top.tolist()[: len(own)] == own[: len(top)]


@given(many_sessions, some_candidates, st.integers(0, 30), st.booleans())
def test_the_top_k_have_the_target_at_its_rank(lists, candidates, n, is_all):
    """The target ranks behind equal scores; the top k are sorted by index among equal scores."""
    found = evaluated(lists, candidates, is_all=is_all, k=n)
    k = min(n, len(candidates))
    assert found.top_items.shape == found.top_scores.shape == (len(found.ranks), k)
    for target, rank, top, scores in zip(
        found.targets, found.ranks, found.top_items, found.top_scores, strict=True
    ):
        assert sorted(scores, reverse=True) == scores.tolist()
        items = top.tolist()
        assert {*items} <= {*candidates}
        if 0 < rank <= k:
            assert scores[rank - 1] == scores[items.index(target)]
            assert rank == k or scores[rank] < scores[rank - 1]


@pytest.mark.long
@given(many_sessions, some_candidates, st.integers(1, 4))
def test_each_process_ranks_its_own_sessions_once(lists, candidates, world):
    """Without the all_reduce, what a process did not rank stays 0."""

    class Unreduced(Process):
        def all_reduce(self, values):
            return values

    parts = [
        evaluated(lists, candidates, 4, Unreduced(Rank(rank, world), CPU), is_all=True, k=3)
        for rank in range(world)
    ]
    whole = evaluated(lists, candidates, is_all=True, k=3)
    for name in ("targets", "ranks", "top_items", "top_scores"):
        assert np.array_equal(sum(getattr(part, name) for part in parts), getattr(whole, name))


@pytest.mark.parametrize("task", ["clm", "mlm", "plm", "rtd"])
def test_a_process_without_a_session_left_predicts_one_item_for_the_others(task):
    """The one session of the batch is on rank 0, so rank 1 has an empty row."""

    class OtherHasOnePart(Shard):
        def stack(self, values):
            return torch.stack([torch.ones_like(values), values])

    batch = sessions_of([[2, 3, 4]]).gather(torch.tensor([0]), Rank(1, 2))
    [idle] = _synchronised_prefixes(batch, torch.tensor([1]), OtherHasOnePart(1, 2), CPU, 1)
    task = build_task(task_config(name=task))
    positions = task.next_item_positions(idle.columns["item_id"], idle.n_known)
    assert positions.is_predicted.sum() == 1


@pytest.mark.parametrize("n_scores", [1, 9, 14])
def test_parts_of_a_batch_hold_no_more_scores_than_wanted(monkeypatch, n_scores):
    """All at once, four targets have 28 scores; a single target's may be more than wanted."""
    found = []

    class Watched(Remainders):
        def scorer(self, candidates, *, overwrites=False):
            scorer = super().scorer(candidates)
            return lambda *arguments: found.append(scorer(*arguments)) or found[-1]

    monkeypatch.setattr("dayahead.train.evaluate.SCORES_AT_ONCE", n_scores)
    lists, candidates = [[2, 3], [4, 5, 6], [7, 8], [3, 9]], range(2, 9)
    ranked = evaluated(lists, candidates, 4, model=Watched())
    assert max(scores.numel() for scores in found) <= max(n_scores, 7)
    assert ranked.ranks.tolist() == [brute_force(session, candidates) for session in lists]


@pytest.mark.parametrize("worst", [np.nan, np.inf])
def test_a_score_that_is_not_finite_raises(worst):
    with pytest.raises(ScoreError, match="not finite"):
        evaluated([[2, 3], [4, 5]], [3, 4, 5], model=Remainders(worst))
