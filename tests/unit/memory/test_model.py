"""The model as a whole: resume, causality, order, candidates and the whole catalogue, a network."""

from dataclasses import replace

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import given, settings

from dayahead.core.errors import ConfigError, TrainingError
from dayahead.memory import awaited, cells
from dayahead.memory.memories import Memories
from dayahead.memory.model import MemoryModel
from dayahead.memory.outline import Positions
from support.clicks import HOUR, clicks, prefixes_of, random_clicks, seeds, with_pasts
from support.memory_models import (
    N_ITEMS,
    SETTINGS,
    SIZES,
    SMALL,
    equal_states,
    fitted,
    window,
    windows_with_pasts,
)

A, B, C = 2, 3, 4
EVERY = np.arange(2, 2 + N_ITEMS)
PREFIXES = prefixes_of(with_pasts(random_clicks(99, start=3), 98))


def network(positions, candidates):
    """A network's scores that depend on the position alone."""
    factors = 1.0 + torch.from_numpy(positions.rows + 0.1 * positions.n_after)
    scores = torch.sin(torch.arange(N_ITEMS) * factors[:, None]).float()
    return scores.gather(1, (candidates - 2).clamp(min=0))


either_way = pytest.mark.parametrize("with_past", [False, True])


@pytest.mark.long
@pytest.mark.parametrize("kind", [{}, {"with_past": True}, {"tick": HOUR // 6, "gap": HOUR // 4}])
@settings(max_examples=3)
@given(seed=seeds)
def test_resuming_is_going_on(seed, kind):
    windows = windows_with_pasts(seed, 3)
    resumed = fitted(*windows[:2], **kind)
    other = MemoryModel(resumed.settings)
    other.load_state_dict(safetensors.torch.load(safetensors.torch.save(resumed.state_dict())))
    assert equal_states(resumed, other)
    for model in (resumed, other):
        model.fit(*windows[2])
    assert equal_states(resumed, other)
    assert equal_states(resumed, fitted(*windows, **kind))
    assert torch.equal(resumed.scores(PREFIXES, EVERY), other.scores(PREFIXES, EVERY))


@pytest.mark.slow
@either_way
@settings(max_examples=5)
@given(seed=seeds)
def test_the_order_of_a_windows_sessions_does_not_matter(seed, with_past):
    windows = windows_with_pasts(seed, 2)
    shuffle = np.random.default_rng(seed).permutation(len(windows[0][0]))
    shuffled = [(sessions.take(shuffle), end) for sessions, end in windows]
    models = (fitted(*each, with_past=with_past) for each in (windows, shuffled))
    assert equal_states(*models)


@either_way
def test_a_prefix_is_scored_the_same_among_any_others(with_past):
    model = fitted(*windows_with_pasts(0, 2), with_past=with_past)
    together = model.scores(PREFIXES, EVERY)
    backwards = np.arange(len(PREFIXES))[::-1]
    found = model.scores(PREFIXES.take(backwards), EVERY).flip(0)
    assert found == pytest.approx(together, abs=1e-5)
    for row in range(0, len(PREFIXES), 7):
        alone = model.scores(PREFIXES.take(np.array([row])), EVERY)
        assert alone[0] == pytest.approx(together[row], abs=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("tick", [0, HOUR // 4])
def test_threads_change_nothing(monkeypatch, tick):
    """In small parts, of which there is one for each thread at a time."""
    monkeypatch.setattr(awaited, "CELLS", 5 * SMALL.n_candidates)
    monkeypatch.setattr(cells, "FEW_CELLS", 0)
    found, before = [], torch.get_num_threads()
    for n_threads in (1, 3):
        torch.set_num_threads(n_threads)
        model = fitted(window(0, 0), window(1, 1), tick=tick, gap=HOUR)
        found.append((model, model.scores(PREFIXES, EVERY)))
    torch.set_num_threads(before)
    (one, scores), (other, others) = found
    assert equal_states(one, other)
    assert torch.equal(scores, others)


def test_a_state_does_not_change_with_the_model():
    model = fitted(window(0, 0))
    state = model.state_dict()
    before = {name: value.clone() for name, value in state.items()}
    model.fit(*window(1, 1))
    assert all(torch.equal(value, before[name]) for name, value in state.items())


def test_scoring_changes_nothing():
    model, other = fitted(window(0, 0)), fitted(window(0, 0))
    model.scores(PREFIXES, EVERY)
    model.explain(PREFIXES.take(np.array([0])), np.array([A]), EVERY)
    assert equal_states(model, other)


def test_sessions_that_end_after_the_window_count_as_at_its_end():
    sessions, end = window(0, 0)
    sessions.times[sessions.last] += 2 * HOUR
    assert fitted((sessions, end), window(1, 1)).scores(PREFIXES, EVERY).isfinite().all()
    states = []
    for times in (sessions.times, np.minimum(sessions.times, end)):
        counted = Memories(SETTINGS)
        counted.grow(SIZES)
        counted.add([replace(sessions, times=times)], end)
        states.append(counted.state_dict())
    for name, tensor in states[0].items():
        if name == "items.counts" or name.startswith("pairs."):
            assert torch.equal(tensor, states[1][name]), name


def test_a_seed_gives_one_model_and_another_seed_another():
    assert equal_states(fitted(window(0, 0), seed=1), fitted(window(0, 0), seed=1))
    assert not equal_states(fitted(window(0, 0), seed=1), fitted(window(0, 0), seed=2))


def test_what_follows_always_is_learned():
    windows = [
        (clicks([[A, B], [B, C], [C, A]] * 20, [[i + 0.1, i + 0.2]] * 60), i + 1) for i in (0, 1)
    ]
    model = fitted(*((sessions, end * HOUR) for sessions, end in windows))
    scores = model.scores(clicks([[A], [B], [C]]), EVERY)
    assert (scores.argmax(1) + 2).tolist() == [B, C, A]


def test_items_that_the_head_does_not_rank_follow_by_popularity():
    model = fitted(window(0, 0), window(1, 1), config=replace(SMALL, n_candidates=3))
    scores = model.scores(PREFIXES, EVERY)
    assert ((scores >= 0).sum(1) == 3).all()
    popularity = torch.from_numpy(model.memories.known.popularity[2:])
    for row in scores:
        order = row.masked_fill(row >= 0, -torch.inf).argsort(descending=True)[:-3]
        assert (popularity[order].diff() <= 0).all()


def test_ranking_all_of_nothing_seen_ranks_own_items_alone():
    model = fitted(config=replace(SMALL, rank_all=True))
    is_own = [np.isin(EVERY, items) for items in np.split(PREFIXES.items, PREFIXES.offsets[1:-1])]
    assert (model.scores(PREFIXES, EVERY).numpy() >= 0).tolist() == np.array(is_own).tolist()


def test_old_neighbours_do_not_spoil_the_head():
    model = fitted(window(0, 0), window(1, 1), window(2, 320), window(3, 321))
    assert all(torch.isfinite(each).all() for each in model.head.parameters())


def test_a_loss_that_is_not_finite_stops_the_fit():
    with pytest.raises(TrainingError, match=r"lower memory\.learning_rate"):
        fitted(window(0, 0), window(1, 1), config=replace(SMALL, learning_rate=1e6, epochs=50))


def test_the_whole_catalogue_can_be_ranked():
    windows = window(0, 0), window(1, 1)
    every = fitted(*windows, config=replace(SMALL, rank_all=True))
    scores = every.scores(PREFIXES, EVERY)
    assert (scores >= 0).sum(1).tolist() == [int(every.memories.items.is_seen.sum())] * len(scores)
    best = fitted(*windows).scores(PREFIXES, EVERY)
    is_ranked = best >= 0  # the same up to what is subtracted from each row
    differences = torch.where(is_ranked, scores - best, torch.nan)
    spread = differences.nan_to_num(-9).amax(1) - differences.nan_to_num(9e9).amin(1)
    assert spread == pytest.approx(torch.zeros(len(scores)), abs=1e-4)


def test_only_the_candidates_asked_for_are_ranked():
    model = fitted(window(0, 0))
    some = np.array([B, 9, A])
    scores = model.scores(PREFIXES, some)
    assert scores.shape == (len(PREFIXES), 3)
    assert (scores >= 0).all()


def test_a_network_is_a_feature():
    windows = window(0, 0), window(1, 1)
    model = fitted(*windows, network=network, with_network=True)
    scores = model.scores(PREFIXES, EVERY, network)
    some = np.array([A, B, 9])
    assert model.scores(PREFIXES, some, network).shape == (len(PREFIXES), 3)
    other = model.scores(PREFIXES, EVERY, lambda positions, items: -network(positions, items))
    assert not torch.equal(scores, other)
    [parts] = model.explain(PREFIXES.take(np.array([0])), np.array([A]), EVERY, network)
    assert parts["network.log_softmax"] != 0


def test_a_network_is_read_at_the_rows_of_its_sessions():
    """Shuffled sessions with their own scores give the same model."""
    (sessions, end), shuffle = window(0, 0), np.random.default_rng(0).permutation(60)
    model = fitted((sessions, end), network=network, with_network=True)
    shuffled = sessions.take(shuffle), end
    other = fitted(
        shuffled,
        network=lambda positions, items: network(
            Positions(shuffle[positions.rows], positions.n_after), items
        ),
        with_network=True,
    )
    assert equal_states(model, other)


@pytest.mark.parametrize("with_network", [False, True])
def test_a_network_missing_or_unexpected_is_refused(with_network):
    model = fitted(with_network=with_network)
    with pytest.raises(ConfigError, match="with_network"):
        model.fit(*window(0, 0), None if with_network else network)


@pytest.mark.parametrize("rows", [[], [[A]], [[A], [B]], [[1, 1], [1, A]], [[A, B]], [[A, 1]]])
def test_windows_that_teach_nothing_give_finite_scores(rows):
    model = fitted()
    for end in (1, 2):
        model.fit(clicks(rows, times=[[end - 0.5] * len(row) for row in rows]), end * HOUR)
    scores = model.scores(PREFIXES, EVERY)
    assert scores.isfinite().all()
    assert model.scores(clicks([]), EVERY).shape == (0, N_ITEMS)


def test_after_a_gap_memories_have_faded():
    near, far = fitted(window(0, 0), window(1, 1)), fitted(window(0, 0), window(1, 101))
    assert len(far.memories.pairs.table) < len(near.memories.pairs.table)
    assert far.scores(PREFIXES, EVERY).isfinite().all()


def test_new_items_are_ranked_once_they_are_seen():
    model = fitted(window(0, 0), window(1, 1))
    model.grow(SIZES | {"item_id": 20})
    assert model.n_items == 20
    every = np.arange(2, 22)
    new = 15
    assert (model.scores(PREFIXES, every)[:, new - 2] < 0).all()
    model.fit(clicks([[A, new]] * 30, [[2.1, 2.2]] * 30), 3 * HOUR)
    assert model.scores(clicks([[A]]), every)[0, new - 2] >= 0


def test_an_explanation_names_every_feature_and_an_item_that_is_no_candidate_has_none():
    model = fitted(window(0, 0), window(1, 1))
    [parts] = model.explain(clicks([[A]]), np.array([A]), EVERY)
    assert list(parts) == list(model.features) == list(model.weights())
    model.grow(SIZES | {"item_id": 20})
    none, again = model.explain(clicks([[A]]), np.array([20, A]), EVERY)
    assert not none
    assert again.keys() == parts.keys()


def test_large_windows_teach_the_head_by_a_sample():
    """Of all positions in all sessions, as many as `n_examples` says."""
    for n_examples, n_drawn in ((10, 10), (20, 20), (1000, 27)):
        config = replace(SMALL, n_examples=n_examples, n_candidates=N_ITEMS, n_replayed=1000)
        sessions = clicks([[A, B, C, A]] * 18, [[i / 20] * 4 for i in range(18)])  # half are late
        model = fitted((sessions, HOUR), config=config)
        assert len(model.replay.kept) == n_drawn


def test_the_head_learns_from_every_click_but_a_sessions_first():
    """Each target once, after what precedes it; what the memories lack teaches nothing."""
    early = [[A, B, C], [C, B, A]]
    late = [[B, A, C, A], [B], [C, 9], [A, B]]
    times = [[i / 10 + j / 100 for j in range(len(row))] for i, row in enumerate(early + late)]
    config = replace(SMALL, n_candidates=N_ITEMS, n_replayed=1000)
    asked = []

    def recorded(positions, candidates):
        asked.extend(zip(positions.rows.tolist(), positions.n_after.tolist(), strict=True))
        return network(positions, candidates)

    sessions = clicks([*early, [A, B], *late], [*times[:2], [0.15, 0.16], *times[2:]])
    model = fitted((sessions, HOUR), network=recorded, config=config, with_network=True)
    assert asked == [(3, 3), (3, 2), (3, 1), (5, 1), (6, 1)]
    kept = model.replay.kept
    assert (
        kept.context[:, model.memories.context.index("prefix.length")].argsort().tolist()[-1] == 2
    )
    assert len(kept) == 4


def test_without_neighbours_no_session_is_kept():
    model = fitted(window(0, 0), window(1, 1), config=replace(SMALL, n_best=0))
    assert len(model.memories.memories["sessions"].times) == 0
    [parts] = model.explain(PREFIXES.take(np.array([0])), np.array([A]), EVERY)
    scores = model.scores(PREFIXES, EVERY)
    assert scores.isfinite().all()
    assert not torch.equal(scores, fitted(window(0, 0), window(1, 1)).scores(PREFIXES, EVERY))
    assert "neighbours.items.4" in parts


def test_a_mixture_resumes_and_ranks():
    config = replace(SMALL, head="mixture")
    model = fitted(window(0, 0), window(1, 1), config=config)
    other = MemoryModel(model.settings)
    other.load_state_dict(model.state_dict())
    for each in (model, other):
        each.fit(*window(2, 2))
    assert equal_states(model, other)
    assert torch.equal(model.scores(PREFIXES, EVERY), other.scores(PREFIXES, EVERY))


def test_weights_are_the_heads_where_it_is_linear_and_mean_gradients_otherwise():
    windows = window(0, 0), window(1, 1)
    linear = fitted(*windows, config=replace(SMALL, head_width=0))
    expected = dict(zip(linear.features, linear.head.linear.tolist(), strict=True))
    assert linear.weights() == pytest.approx(expected, abs=1e-6)
    model = fitted(*windows)
    kept, step = model.replay.kept.single(), 1e-3
    higher = kept.features.clone()
    higher[..., 0] += step
    with torch.no_grad():
        of_kept = model.head.evidence(kept.features, kept.context)
        change = (model.head.evidence(higher, kept.context) - of_kept) / step
    mean = float(change[kept.is_candidate].mean())
    assert next(iter(model.weights().values())) == pytest.approx(mean, abs=2e-3)
    assert fitted().weights() == {}


@pytest.mark.slow
def test_2000_windows_take_no_more_room_than_1000():
    """Pairs are pruned, neighbours and replay are limited, all else is one row per item."""
    config = replace(SMALL, epochs=1, n_examples=20, n_latest=60, n_earlier=30)
    model = fitted(config=config)
    sizes = []
    for position in range(2000):
        model.fit(*window(position, position))
        sizes.append(sum(tensor.nbytes for tensor in model.state_dict().values()))
    assert max(sizes[1000:]) <= 1.02 * max(sizes[200:1000])


def test_a_networks_scores_are_normalised_over_the_candidates():
    """A constant added to all scores of a session changes nothing."""
    windows = window(0, 0), window(1, 1)
    model = fitted(*windows, network=network, with_network=True)
    scores = model.scores(PREFIXES, EVERY, network)
    shifted = model.scores(PREFIXES, EVERY, lambda positions, items: network(positions, items) + 5)
    torch.testing.assert_close(shifted, scores, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("item", range(2, N_ITEMS + 2, 3))
def test_end_to_end_the_networks_gradients_are_those_of_the_heads_loss(item):
    """Against differences of the loss, for one step over all examples of a second window."""
    config = replace(SMALL, end_to_end=True, batch_size=1000, epochs=1, n_replayed=0)
    losses, gradients = {}, []
    for shift in (-0.05, 0.0, 0.05):
        table = torch.linspace(-1, 1, N_ITEMS + 2).requires_grad_()
        moved = table + shift * (torch.arange(N_ITEMS + 2) == item)
        model = fitted(window(0, 0), network=network, config=config, with_network=True)
        torch.nn.init.constant_(model.head.linear, 1.0)

        def scores(positions, candidates, moved=moved):
            return moved[candidates]

        def update(step, n_steps, table=table):
            assert (step, n_steps) == (0, 1)
            gradients.append(table.grad.clone())

        losses[shift] = model.fit(*window(1, 1), scores, update)
    found = float(gradients[1][item])
    assert found != 0
    assert found == pytest.approx((losses[0.05] - losses[-0.05]) / 0.1, rel=0.02, abs=1e-5)


def test_end_to_end_replayed_examples_keep_the_features_they_had():
    config = replace(SMALL, end_to_end=True, n_replayed=1000)
    asked = []
    model = fitted(window(0, 0), network=network, config=config, with_network=True)
    n_replayed = len(model.replay.kept)

    def recorded(positions, candidates):
        asked.append(positions.rows)
        return network(positions, candidates)

    model.fit(*window(1, 1), recorded, lambda step, n_steps: None)
    sessions, _ = window(1, 1)
    n_new = len(model.replay.kept) - n_replayed
    assert n_replayed > 0
    assert n_new > 0
    assert sum(map(len, asked)) == (sessions.lengths - 1).sum() + SMALL.epochs * n_new


@pytest.mark.parametrize(("min_steps", "n_steps"), [(0, 1), (1, 1), (5, 6), (1000, 16)])
def test_few_examples_make_smaller_steps(min_steps, n_steps):
    config = replace(SMALL, min_steps=min_steps, first_epochs=1, n_replayed=1000)
    sessions = clicks([[A, B]] * 32, [[i / 40] * 2 for i in range(32)])  # half of them are late
    model = fitted((sessions, HOUR), config=config)
    assert len(model.replay.kept) == 16  # at once, by threes or one by one
    assert model.trainer.optimizer.state[model.head.linear]["step"] == n_steps
