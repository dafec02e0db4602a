"""Ranks of targets against a brute-force sort, whatever the batches, the order or the processes."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dayahead.data.batches import MemoryBatches, Sessions, Share, measuring_plan
from dayahead.errors import ScoreError
from dayahead.training.measuring import measure
from dayahead.training.processes import Process

ALONE = Process(Share(0, 1), torch.device("cpu"))


@dataclass
class Remainders:
    """Scores an item by its distance from the last known one modulo 5: many ties."""

    worst: float = 5.0

    def scorer(self, candidates):
        def scores(columns, n_known):
            last = columns["item_id"].gather(1, (n_known - 1)[:, None])
            return self.worst - ((candidates - last) % 5).float()

        return scores


def sessions_of(lists):
    lengths = torch.tensor([0, *map(len, lists)])
    return Sessions({"item_id": torch.tensor([i for s in lists for i in s])}, lengths.cumsum(0))


def measured(lists, candidates, batch_size=3, process=ALONE, model=None):
    sessions = sessions_of(lists)
    batches = MemoryBatches(sessions, measuring_plan(sessions.lengths, batch_size), process.share)
    wanted = np.array(candidates, np.int32)
    return measure(model or Remainders(), batches, len(lists), wanted, process)


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


@given(many_sessions, some_candidates, st.integers(1, 4))
def test_each_process_finds_its_own_and_nothing_twice(lists, candidates, world):
    """Without the sum over processes, what one did not measure stays 0."""

    class Unsummed(Process):
        def summed(self, values):
            return values

    parts = [
        measured(lists, candidates, 4, Unsummed(Share(rank, world), torch.device("cpu")))
        for rank in range(world)
    ]
    whole = measured(lists, candidates)
    assert np.array_equal(sum(part.targets for part in parts), whole.targets)
    assert np.array_equal(sum(part.ranks for part in parts), whole.ranks)


@pytest.mark.parametrize("worst", [np.nan, np.inf])
def test_a_score_that_is_no_number_raises(worst):
    with pytest.raises(ScoreError, match="not finite"):
        measured([[2, 3], [4, 5]], [3, 4, 5], model=Remainders(worst))
