"""Reminders: where a baseline ranks the items of the session itself, by hand and for any rows."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dayahead.config.baselines import BASELINES
from dayahead.metrics.scores import DenseScores
from dayahead.model.building import build_reminders
from dayahead.model.own_items import OwnItems, Reminders, Scored, leaving_out
from support.tiny_settings import baseline, count_window, padded, tiny_params, tiny_statistics

A, B, C, D, E = range(2, 7)
NEW, NEWER = 40, 41
"""Beyond the catalogue: no session had them when the baseline was fitted."""
CANDIDATES = torch.tensor([A, B, C, D])
LOG = [[A, B, A], [B, C], [A, B], [C, D], [D, B, A, E]]
REMINDING = [name for name in BASELINES if name != "own"]


def own_of(session, candidates=CANDIDATES, past=0):
    rows, n_known = padded([session])
    columns = {"item_id": rows}
    if past:
        columns["_is_past"] = (torch.arange(rows.shape[1]) < past).long()[None]
    own = OwnItems.of(columns, n_known, candidates)
    return {
        int(item): (int(step), int(column))
        for item, step, column in zip(own.items[0], own.steps[0], own.columns[0], strict=True)
        if item
    }


def best_first(architecture, session, candidates=CANDIDATES, log=LOG, **settings):
    """Items by score, the best first, with all own items that have one."""
    model = baseline(architecture, 5, model=settings)
    count_window(model, log)
    rows, n_known = padded([session, [A]])
    columns = {"item_id": rows, "event_time": torch.full_like(rows, 10**12)}
    scored = model.session_scorer(candidates)(columns, n_known)
    found = dict(zip(candidates.tolist(), scored.scores.dense()[0].tolist(), strict=True))
    others = zip(scored.items[0].tolist(), scored.item_scores[0].tolist(), strict=True)
    found |= {item: score for item, score in others if item and score > -torch.inf}
    return sorted(found, key=found.get, reverse=True)


def test_own_items_are_the_different_ones_the_latest_first():
    assert own_of([A, NEW, B, A, E]) == {E: (0, -1), A: (1, 0), B: (2, 1), NEW: (3, -1)}
    assert list(own_of([A, NEW, B, A, E])) == [E, A, B, NEW]


def test_unknown_items_and_the_past_are_no_own_items():
    assert own_of([A, 1, B, 0]) == {B: (1, 1), A: (3, 0)}
    assert own_of([A, B, C, B], past=2) == {B: (0, 1), C: (1, 2)}


@given(st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=6), min_size=1, max_size=5))
def test_own_items_of_a_row_depend_on_no_other(sessions):
    rows, n_known = padded(sessions)
    own = OwnItems.of({"item_id": rows}, n_known, CANDIDATES)
    for session, items, steps in zip(sessions, own.items.tolist(), own.steps.tolist(), strict=True):
        found = {item: step for item, step in zip(items, steps, strict=True) if item}
        known = [item for item in session if item > 1]
        assert found == {item: session[::-1].index(item) for item in known}


def test_items_are_left_out_by_their_index_and_none_beyond_the_flags():
    scores = DenseScores(torch.ones(1, 4))
    scored = Scored(scores, torch.tensor([[A, B, NEW, 0]]), torch.arange(4.0)[None])
    flags = torch.tensor([False] * B + [True])
    found = leaving_out(lambda columns, n_known: scored, flags)({}, torch.tensor([1]))
    assert found.items.tolist() == [[A, 0, NEW, 0]]
    assert found.item_scores.tolist() == [[0, -torch.inf, 2, 3]]
    assert found.scores is scores


@pytest.mark.parametrize("architecture", BASELINES)
def test_no_baseline_omits_a_session_s_own_item_that_no_session_had_before(architecture):
    """17 % of diginetica's targets are such items, and all baselines ranked them last."""
    for rule in ("first", "boost"):
        found = best_first(architecture, [A, NEW, NEWER], remind=rule, remind_weight=9.0)
        assert found[:3] == [NEWER, NEW, A]


@pytest.mark.parametrize("architecture", REMINDING)
def test_own_items_stand_before_or_below_all_others_which_keep_their_order(architecture):
    first, none = (best_first(architecture, [B, NEW, A], remind=rule) for rule in ("first", "none"))
    others = [item for item in best_first(architecture, [B, NEW, A]) if item not in {A, B}]
    assert first == [A, NEW, B, *others]
    assert none == [*others, A, B]


@pytest.mark.parametrize(
    ("log", "first"),
    [
        (LOG, [NEW]),  # 20 % of the sessions end with an item they already had
        ([[A, B, A], *[[B, C], [A, B], [C, D]] * 3], []),  # 10 %: last, as what has no score
    ],
)
def test_memory_ranks_new_own_items_first_where_items_often_come_again(log, first):
    found = best_first("memory", [A, NEW, B], log=log)
    assert [item for item in found if item == NEW] == first
    assert found[: len(first)] == first
    assert set(found) - {NEW} == set(CANDIDATES.tolist())


def test_the_past_is_no_event_of_a_session_that_ends_with_an_own_item():
    model = baseline("memory", 5)
    rows, lengths = padded([[A, B, A], [A, B, A]])
    is_past = torch.tensor([[1, 0, 0], [0, 0, 0]])
    model.count_ends({"item_id": rows, "_is_past": is_past}, lengths)
    assert model.ends.tolist() == [2, 1]


@pytest.mark.parametrize("architecture", REMINDING)
def test_score_leaves_the_method_s_own_scores(architecture):
    model = baseline(architecture, 5, model={"remind": "score"})
    count_window(model, LOG)
    rows, n_known = padded([[B, NEW, A], [C, D]])
    columns = {"item_id": rows}
    alone = model.method_scorer(CANDIDATES)(columns, n_known)
    alone = alone if isinstance(alone, torch.Tensor) else alone.dense()
    assert torch.equal(model.scorer(CANDIDATES)(columns, n_known), alone)


def test_own_items_rank_first_in_the_baseline_of_this_name_whatever_is_set():
    wanted = [NEW, C, A, B, D]  # A and B have four events each, D two
    for rule in ("none", "score", "boost", "first"):
        assert best_first("own", [C, NEW], remind=rule) == wanted
    assert best_first("popularity", [C, NEW], remind="first") == wanted


def test_popularity_is_one_list_for_all_unless_another_rule_is_set():
    log = 4 * [[B, C, B, A]]
    model = baseline("popularity", 5, model={"remind": "auto"})
    count_window(model, log)  # each session repeats an item
    rows, n_known = padded([[B, NEW], [D]])
    found = model.session_scorer(CANDIDATES)({"item_id": rows}, n_known)
    assert torch.equal(*found.scores.dense())
    assert found.item_scores.isinf().all()
    boosted = tiny_params({"model": {"architecture": "popularity", "remind": "boost"}}).model
    assert build_reminders(boosted, tiny_statistics()).rule == "boost"


def reminded(reminders, scores, own):
    """Scores of the candidates and of own items without a column, of one session."""
    found, others = reminders(DenseScores(torch.tensor([scores])), own)
    return found.dense(), others


def test_a_boost_by_hand():
    """Of three candidates the best has 4: to own items 4 * 2 * exp(-steps / 3) is added."""
    own = OwnItems.of({"item_id": torch.tensor([[B, NEW, A]])}, torch.tensor([3]), CANDIDATES[:3])
    scores, others = reminded(Reminders("boost", 2.0, 3.0), [1.0, -0.5, 4.0], own)
    after = (8 * torch.exp(-torch.tensor([0.0, 1.0, 2.0]) / 3)).tolist()
    assert scores[0].tolist() == pytest.approx([1 + after[0], after[2], 4.0])
    assert others[0].tolist() == pytest.approx([-torch.inf, after[1], -torch.inf])


def test_a_boost_where_the_method_knows_nothing_counts_from_0():
    own = OwnItems.of({"item_id": torch.tensor([[B]])}, torch.tensor([1]), CANDIDATES)
    scores, _ = reminded(Reminders("boost", 2.0, 3.0), [-0.2, -1.0, -1.0, -0.5], own)
    assert scores[0].tolist() == pytest.approx([-0.2, 2.0, -1.0, -0.5])


@pytest.mark.parametrize(
    ("repeats", "raised"), [("keep", {A, B}), ("drop_consecutive", {B}), ("drop_all", set())]
)
@pytest.mark.parametrize("rule", ["first", "boost"])
def test_items_that_cannot_come_next_are_not_raised(rule, repeats, raised):
    own = OwnItems.of({"item_id": torch.tensor([[B, A]])}, torch.tensor([2]), CANDIDATES)
    scores, _ = reminded(Reminders(rule, 2.0, 3.0, repeats), [0.1, 0.2, 0.3, 0.4], own)
    assert {CANDIDATES[n].item() for n in (scores[0] > 0.4).nonzero()[:, 0]} == raised


def test_the_data_set_s_rule_for_repeats_reaches_the_reminders():
    config = tiny_params({"model": {"architecture": "stan", "remind": "boost"}}).model
    assert build_reminders(config, tiny_statistics()).repeats == tiny_statistics().sessions.repeats
    assert build_reminders(config, tiny_statistics()).rule == "boost"


@pytest.mark.parametrize(
    ("n_repeating", "rule"), [(0, "none"), (1, "score"), (11, "score"), (12, "first")]
)
@pytest.mark.parametrize("architecture", ["transitions", "stan", "slist", "cooccurrence"])
def test_auto_goes_by_the_share_of_sessions_that_end_with_an_item_of_their_own(
    architecture, n_repeating, rule
):
    """Counted over all fits; items repeated before the end of a session do not count."""
    repeating, other = [B, C, D, B], [B, C, C, D]
    model = baseline(architecture, 5, model={"remind": "auto"})
    fixed = baseline(architecture, 5, model={"remind": rule})
    for each in (model, fixed):
        count_window(each, [other, *n_repeating * [repeating]])
        count_window(each, (99 - n_repeating) * [other], start=86_400)
    again = baseline(architecture, 5, model={"remind": "auto"})
    again.load_state_dict(model.state_dict())
    rows, n_known = padded([[B, NEW, A]])
    for each in (model, again):
        found, wanted = (
            one.session_scorer(CANDIDATES)({"item_id": rows}, n_known) for one in (each, fixed)
        )
        assert torch.equal(found.scores.dense(), wanted.scores.dense())
        assert torch.equal(found.item_scores, wanted.item_scores)


@pytest.mark.parametrize("rule", ["none", "score", "boost", "first"])
def test_without_candidates_own_items_are_the_only_ones(rule):
    wanted = [NEW, A] if rule in {"boost", "first"} else []
    none = CANDIDATES[:0]
    assert best_first("transitions", [A, NEW], none, remind=rule) == wanted


def test_popular_items_with_millions_of_events_do_not_hide_the_order():
    """In float32 a fraction added to large counts is lost."""
    own = OwnItems.of({"item_id": torch.tensor([[B, A, C]])}, torch.tensor([3]), CANDIDATES)
    scores, _ = reminded(Reminders("first", 1.0, 1.0), [8e6, 8e6 + 1, 3.0, 0.0], own)
    assert scores[0].argsort(descending=True).tolist() == [2, 0, 1, 3]
