"""Ranks of targets against a brute-force sort, whatever the batches, the order or the processes."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dayahead.core.errors import ScoreError
from dayahead.distributed.process import Process, Rank
from dayahead.distributed.sharding import WHOLE
from dayahead.train.batches import MemoryBatches, Sessions, measuring_plan
from dayahead.train.evaluate import Targets, measure, window_ranks

CPU = torch.device("cpu")
ALONE = Process(Rank(0, 1), CPU)


@dataclass
class Remainders:
    """Scores an item by its distance from the last known one modulo 5: many ties."""

    worst: float = 5.0
    shard = WHOLE

    def scorer(self, candidates):
        def scores(columns, n_known):
            last = columns["item_id"].gather(1, (n_known - 1)[:, None])
            return self.worst - ((candidates - last) % 5).float()

        return scores


def sessions_of(lists):
    lengths = torch.tensor([0, *map(len, lists)])
    return Sessions({"item_id": torch.tensor([i for s in lists for i in s])}, lengths.cumsum(0))


def measured(lists, candidates, batch_size=3, process=ALONE, *, model=None, every=False, n_best=0):
    sessions = sessions_of(lists)
    batches = MemoryBatches(sessions, measuring_plan(sessions.lengths, batch_size), process.rank)
    wanted = np.array(candidates, np.int32)
    asked = Targets.all(np.array([*map(len, lists)])) if every else Targets.last(len(lists))
    return measure(model or Remainders(), batches, asked, wanted, process, n_best)


def brute_force(session, candidates):
    *known, target = session
    if target not in candidates:
        return 0
    scores = {item: 5 - (item - known[-1]) % 5 for item in candidates}
    not_worse = [item for item in candidates if scores[item] >= scores[target]]
    return len(not_worse)


many_sessions = st.lists(
    st.lists(st.integers(2, 20), min_size=2, max_size=5), min_size=1, max_size=9
)
some_candidates = st.sets(st.integers(2, 20)).map(sorted)


@given(many_sessions, some_candidates, st.integers(1, 10))
def test_ranks_equal_a_count_by_hand_for_any_batches(lists, candidates, batch_size):
    found = measured(lists, candidates, batch_size)
    assert found.targets.tolist() == [session[-1] for session in lists]
    assert found.ranks.tolist() == [brute_force(session, candidates) for session in lists]


@given(many_sessions, some_candidates, st.integers(1, 10))
def test_at_all_positions_each_prefix_is_a_session_of_its_own(lists, candidates, batch_size):
    found = measured(lists, candidates, batch_size, every=True)
    prefixes = [session[:end] for session in lists for end in range(2, len(session) + 1)]
    assert found.targets.tolist() == [prefix[-1] for prefix in prefixes]
    assert found.ranks.tolist() == [brute_force(prefix, candidates) for prefix in prefixes]
    ids = pa.chunked_array([[f"s{i}" for i in range(len(lists))]])
    ranks = window_ranks(ids, Targets.all(np.array([*map(len, lists)])), found, "all")
    pairs = [(f"s{i}", place) for i, s in enumerate(lists) for place in range(1, len(s))]
    assert [*zip(ranks.session_ids.to_pylist(), ranks.positions.tolist(), strict=True)] == pairs
    assert ranks.n_sessions == len(lists)


def test_of_the_past_nothing_is_asked():
    """Two past events, then the session 5 6 7: at all positions 6 and 7 are targets."""
    items = torch.tensor([3, 4, 5, 6, 7, 8, 9])
    is_past = torch.tensor([1, 1, 0, 0, 0, 0, 0])
    sessions = Sessions({"item_id": items, "_is_past": is_past}, torch.tensor([0, 5, 7]))
    batches = MemoryBatches(sessions, measuring_plan(sessions.lengths, 4), ALONE.rank)
    every = np.arange(2, 10, dtype=np.int32)
    found = measure(Remainders(), batches, Targets.all(np.array([3, 2])), every, ALONE)
    assert found.targets.tolist() == [6, 7, 9]


@given(many_sessions, some_candidates, st.integers(0, 30), st.booleans())
def test_the_best_are_listed_and_the_target_stands_where_it_ranks(lists, candidates, n, every):
    """Among equals the target counts as the last of them, and lists go by the lower index."""
    found = measured(lists, candidates, every=every, n_best=n)
    n_best = min(n, len(candidates))
    assert found.best.shape == found.best_scores.shape == (len(found.ranks), n_best)
    for target, rank, best, scores in zip(
        found.targets, found.ranks, found.best, found.best_scores, strict=True
    ):
        assert sorted(scores, reverse=True) == scores.tolist()
        listed = [candidates[place] for place in best]
        if 0 < rank <= n_best:
            assert scores[rank - 1] == scores[listed.index(target)]
            assert rank == n_best or scores[rank] < scores[rank - 1]


@given(many_sessions, some_candidates, st.integers(1, 4))
def test_each_process_finds_its_own_and_nothing_twice(lists, candidates, world):
    """Without the sum over processes, what one did not measure stays 0."""

    class Unsummed(Process):
        def all_reduce(self, values):
            return values

    parts = [
        measured(lists, candidates, 4, Unsummed(Rank(rank, world), CPU), every=True, n_best=3)
        for rank in range(world)
    ]
    whole = measured(lists, candidates, every=True, n_best=3)
    for name in ("targets", "ranks", "best", "best_scores"):
        assert np.array_equal(sum(getattr(part, name) for part in parts), getattr(whole, name))


@pytest.mark.parametrize("worst", [np.nan, np.inf])
def test_a_score_that_is_no_number_raises(worst):
    with pytest.raises(ScoreError, match="not finite"):
        measured([[2, 3], [4, 5]], [3, 4, 5], model=Remainders(worst))
