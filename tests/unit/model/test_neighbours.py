"""Session neighbours against the methods as their papers state them, one session at a time."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dayahead.config.baselines import NEIGHBOURS
from support.baseline_settings import NEIGHBOURS as SETTINGS
from support.tiny_settings import baseline, count_sessions, count_window, padded, scores_after

N_ITEMS = 8
CANDIDATES = torch.arange(2, 2 + N_ITEMS)
A, B, C, D, E = range(2, 7)
DAY = 86_400
every_variant = pytest.mark.parametrize("variant", NEIGHBOURS)
DECAYS = ("same", "linear", "div", "log", "quadratic")
items = st.integers(2, 1 + N_ITEMS)
sessions = st.lists(st.lists(items, min_size=2, max_size=6), min_size=1, max_size=15)
scales = st.sampled_from([0.3, 1.0, 5.0])
configs = st.fixed_dictionaries(
    {
        "k": st.integers(1, 5),
        "sample_size": st.integers(1, 8),
        "position_weight": st.sampled_from(DECAYS),
        "step_weight": st.sampled_from(DECAYS),
        "position_scale": scales,
        "age_scale": scales,
        "distance_scale": scales,
        "step_scale": scales,
        "idf": st.sampled_from([0.0, 2.0]),
        "push_reminders": st.booleans(),
    }
)


def fitted(variant, windows, **changes):
    """A model of N_ITEMS items fitted on windows of sessions; each window starts a day later."""
    model = baseline(variant, N_ITEMS, neighbours=SETTINGS | changes)
    for number, window in enumerate(windows):
        count_window(model, window, start=number * 86_400)
    return model


def of_neighbours(scores):
    """Scores of the neighbours' items by item; the others are below 0."""
    return {item + 2: score for item, score in enumerate(scores.tolist()) if score > 0}


def named(name, i, n):
    """V-SkNN's weight of event i of n."""
    return {
        "same": 1.0,
        "linear": max(1 - 0.1 * (n - i), 0),
        "div": i / n,
        "log": 1 / np.log10(n - i + 1.7),
        "quadratic": (i / n) ** 2,
    }[name]


def step_named(name, i):
    """V-SkNN's weight of event i, counted from the session's end."""
    return {
        "same": 1.0,
        "linear": max(1 - 0.1 * i, 0),
        "div": 1 / i,
        "log": 1 / np.log10(i + 1.7),
        "quadratic": 1 / i**2,
    }[name]


def similarity_of(config, variant, query, session, age):
    def position(i):
        if variant == "vsknn":
            return named(config["position_weight"], i, len(query))
        return 1.0 if variant == "sknn" else np.exp((i - len(query)) / config["position_scale"])

    weights = {item: position(i) for i, item in enumerate(query, 1)}
    total = sum(weights[item] for item in sorted(weights.keys() & set(session)))
    if variant != "vsknn":
        total /= np.sqrt(len(set(session)))
    return total * np.exp(-age / config["age_scale"]) if variant in {"stan", "vstan"} else total


def score_of(config, variant, query, session, similarity, idf):
    """What a neighbour adds to the score of each of its items."""
    last_at = {item: i for i, item in enumerate(session, 1)}
    shared = next(i for i, item in enumerate(reversed(query), 1) if item in last_at)
    anchor = max(last_at[item] for item in set(query) & set(session))
    found = {}
    for item, at in last_at.items():
        score = similarity
        if variant == "vsknn":
            score *= step_named(config["step_weight"], shared)
        if variant == "vstan":
            score *= np.exp((1 - shared) / config["step_scale"])
        if variant in {"stan", "vstan"}:
            score *= np.exp(-abs(at - anchor) / config["distance_scale"])
        if variant in {"vsknn", "vstan"}:
            score *= 1 + config["idf"] * idf[item]
        if item in query and variant == "vsknn" and config["push_reminders"]:
            score *= 1 + query.count(item)
        found[item] = score
    return found


def expected(config, variant, log, query):
    """Scores by item, the best as 1; session n of the log is n seconds old, the newest 0."""
    ages = {n: (len(log) - 1 - n) / 86_400 for n in range(len(log))}
    events = [item for session in log for item in session]
    idf = {item: np.log(len(log) / events.count(item)) for item in set(events)}
    relevant = [n for n, session in enumerate(log) if set(session) & set(query)]
    relevant = relevant[-config["sample_size"] :]
    similar = [(similarity_of(config, variant, query, log[n], ages[n]), n) for n in relevant]
    scores = {}
    for similarity, n in sorted(similar)[-config["k"] :]:
        for item, score in score_of(config, variant, query, log[n], similarity, idf).items():
            scores[item] = scores.get(item, 0) + score
    highest = max(scores.values(), default=0)
    return {item: score / highest for item, score in scores.items() if score > 0}


@every_variant
@settings(max_examples=20)
@given(configs, sessions, st.lists(items, min_size=1, max_size=6))
def test_scores_are_those_of_the_papers(variant, config, log, query):
    lengths = {len(session) for session in log}
    log = [session for session in log if len(session) == max(lengths)]  # ends as it starts
    model = fitted(variant, [log], **config)
    wanted = expected(config, variant, log, query)
    assert of_neighbours(scores_after(model, query)) == pytest.approx(wanted, rel=1e-5, abs=1e-30)


def test_other_items_rank_below_by_popularity():
    model = fitted("sknn", [[[A, B], [C, D], [C, E], [C, D]]])
    scores = scores_after(model, [A])
    assert of_neighbours(scores).keys() == {A, B}
    assert [CANDIDATES[n].item() for n in scores.argsort(descending=True, stable=True)[2:5]] == [
        *(C, D, E)
    ]
    assert (scores[4 + 1 :] == -1).all()


@every_variant
def test_sessions_of_earlier_windows_take_part(variant):
    model = fitted(variant, [[[A, B]], [[C, D]]])
    assert of_neighbours(scores_after(model, [A])).keys() == {A, B}


@pytest.mark.long
@every_variant
@settings(max_examples=20)
@given(st.lists(sessions, min_size=1, max_size=4), st.randoms())
def test_dropped_sessions_are_out_of_reach(variant, windows, random):
    """A model that keeps everything takes the same sessions."""
    query = random.choices(range(2, 2 + N_ITEMS), k=3)
    pruned = fitted(variant, windows, sample_size=2)
    whole = fitted(variant, windows, sample_size=2)
    whole.visits = fitted(variant, windows, sample_size=1000).visits
    assert len(pruned.visits.times) <= min(2 * N_ITEMS, len(whole.visits.times))
    assert torch.equal(scores_after(pruned, query), scores_after(whole, query))


def test_of_each_item_no_more_sessions_are_kept_than_are_searched():
    model = fitted("sknn", [[[A, B]] * 2, [[A, B], [C, D]]], sample_size=2)
    assert model.visits.items.tolist() == [0, 1, 0, 1, 2, 3]


def with_an_open_session(variant, open_session, seconds):
    """A model of a window of one day in which a session stays open for so many seconds."""
    model = baseline(variant, N_ITEMS, neighbours=SETTINGS | {"age_scale": 0.04, "k": 10})
    model.start_window(DAY * 1_000_000)
    count_sessions(model, [[A, B]], start=DAY - 2)
    items, lengths = padded([open_session])
    times = torch.tensor([[0] * (len(open_session) - 1) + [seconds]])
    model.count({"item_id": items, "event_time": times * 1_000_000}, lengths)
    model.finish_window()
    return model


@pytest.mark.parametrize("variant", ["vsknn", "vstan"])
def test_inverse_frequencies_count_events_whatever_these_are_worth(variant):
    """With `events.weights`, which may be below 1; popularity alone counts the worth."""
    plain, weighted = (baseline(variant, N_ITEMS, neighbours=SETTINGS) for _ in range(2))
    items, lengths = padded([[A, B], [A, C]])
    columns = {"item_id": items, "event_time": torch.zeros_like(items)}
    for model, worth in ((plain, {}), (weighted, {"_worth": torch.tensor([[0.5, 0.2]] * 2)})):
        model.start_window(DAY * 1_000_000)
        model.count(columns | worth, lengths)
        model.finish_window()
    assert weighted.popularity[:3].tolist() == pytest.approx([1.0, 0.2, 0.2])
    assert weighted.events[:3].tolist() == [2, 1, 1]
    found = of_neighbours(scores_after(weighted, [A]))
    assert found == of_neighbours(scores_after(plain, [A]))
    assert found.keys() == {A, B, C}


@pytest.mark.parametrize("variant", ["stan", "vstan"])
@pytest.mark.parametrize("days", [2, 30, 300])
def test_a_session_that_stays_open_for_weeks_makes_no_other_old(variant, days):
    """With `window.overrun: keep`; counted from its end, the others' weights become 0."""
    found = of_neighbours(scores_after(with_an_open_session(variant, [D, E], days * DAY), [A]))
    assert found == of_neighbours(scores_after(fitted(variant, [[[A, B]]]), [A]))


@pytest.mark.parametrize("variant", ["stan", "vstan"])
def test_a_session_that_stays_open_for_weeks_is_no_newer_than_its_window(variant):
    found, wanted = (
        scores_after(with_an_open_session(variant, [A, C], seconds), [A])
        for seconds in (20 * DAY, DAY)
    )
    assert torch.equal(found, wanted)
    assert found[B - 2] > 0.9 * found[C - 2] > 0


def test_a_batch_is_cut_into_parts_of_bounded_size(monkeypatch):
    log = [[A, B], [B, C], [A, D], [C, D], [D, A], [E, B]]
    model = fitted("vstan", [log])
    rows, n_known = padded(log)
    whole = model.scorer(CANDIDATES)({"item_id": rows}, n_known)
    monkeypatch.setattr("dayahead.model.neighbours.PAIRS", 1)
    assert torch.equal(model.scorer(CANDIDATES)({"item_id": rows}, n_known), whole)
