"""Nights: what is decided, once, and what is carried out."""

import json

import pytest

from dayahead.core.errors import ConfigError
from dayahead.core.files import write_json
from dayahead.nightly.pipeline import RetryLaterError
from support.pretended_nights import (
    PretendedPipeline,
    after_nights,
    linked,
    pretended_night,
    run_nights,
    write_params,
)
from support.window_folders import day


def kinds(night):
    return [entry.kind for entry in night.history.read().entries]


def failed(night):
    return [
        check["guard"] for check in night.history.read().decisions[-1].checks if not check["passed"]
    ]


def reasons(night):
    """What each guard says of the last decision."""
    checks = night.history.read().decisions[-1].checks
    return {check["guard"]: check["why"] for check in checks}


def refused_windows(night):
    return night.history.read().refused_windows


@pytest.mark.long
def test_every_night_publishes_the_newest_model_and_keeps_the_one_before(root):
    _, outcomes = run_nights(root, 5)
    assert [(each.outcome, each.window, each.status) for each in outcomes] == [
        ("published", day(number), 0) for number in (1, 2, 3, 4)
    ]
    assert linked(root) == [day(4), day(3)]
    config = json.loads((root / "published/current/config.json").read_text())
    assert config["window"] == day(4)


@pytest.mark.long
def test_a_window_without_a_target_is_held_and_the_next_night_publishes(root):
    _, outcomes = run_nights(root, 5, levels={"no target": [day(3)]})
    assert [(each.outcome, each.status) for each in outcomes] == [
        ("published", 0), ("published", 0), ("held", 3), ("published", 0),
    ]  # fmt: skip
    assert day(3) in outcomes[2].why
    assert linked(root) == [day(4), day(2)]


def test_a_second_run_of_a_night_decides_nothing(root, night):
    before = (root / "nights/history.jsonl").read_bytes()
    again = night.run()
    assert (again.outcome, again.status, again.why) == ("nothing new", 0, f"since {day(3)}")
    assert (root / "nights/history.jsonl").read_bytes() == before


def add_windows(monkeypatch, state, *reasons):
    """Let each delivery add windows in a state to the list, one for each reason."""
    delivered = PretendedPipeline.update_data

    def update_data(pipeline):
        delivered(pipeline)
        path = pipeline.root / "data/windows/windows.json"
        manifest = json.loads(path.read_text())
        windows = manifest["windows"]
        for why in reasons:
            added = {"window": day(len(windows)), "state": state, "why": why}
            windows.append(windows[-1] | added)
        write_json(path, manifest)

    monkeypatch.setattr(PretendedPipeline, "update_data", update_data)


def test_a_day_that_is_open_is_named_beside_the_one_published(root, monkeypatch):
    """The log goes on for some hours of a further day; a click is a day later."""
    ends = [f"the log ends at noon, the {whole} at midnight" for whole in ("window", "next")]
    add_windows(monkeypatch, "open", *ends)
    _, [*_, outcome] = run_nights(root, 4)
    assert (outcome.outcome, outcome.window) == ("published", day(3))
    assert outcome.open == (
        f"{day(4)} is open: the log ends at noon, the window at midnight; time.complete_until in "
        f"datasets/tiny.yaml says up to when the log is complete"
    )
    again = pretended_night(root).run()
    assert (again.outcome, again.open) == ("nothing new", outcome.open)
    assert "open" not in (root / "nights/history.jsonl").read_text()


def test_one_window_is_too_few(root):
    _, [outcome] = run_nights(root, 1, first=1)
    assert (outcome.outcome, outcome.current) == ("nothing new", "")
    assert "nothing to evaluate yet" in outcome.why


def test_renumbered_items_are_refused_and_nothing_is_trained(root, night):
    night.pipeline.deliver_days(5, {4: {"shift": 1000}})
    trained = (root / "results/windows.csv").read_bytes()
    outcome = night.run()
    assert (outcome.outcome, outcome.status) == ("refused", 4)
    assert failed(night) == ["max_new_items"]
    assert "100.0% of the events" in outcome.why
    assert outcome.why.count("replace its file by a corrected one") == 1
    assert linked(root) == [day(3), day(2)]
    assert (root / "results/windows.csv").read_bytes() == trained
    assert night.run().outcome == "nothing new"
    # With a corrected file: the same window is decided again.
    night.pipeline.deliver_days(5)
    assert night.run().outcome == "published"
    assert linked(root) == [day(4), day(3)]


@pytest.mark.long
def test_a_published_window_is_decided_again_once_its_data_are_corrected(root, night):
    night.pipeline.deliver_days(5, {4: {"n_sessions": 30}})
    assert night.run().outcome == "published"
    night.pipeline.deliver_days(5)
    assert (night.run().outcome, night.run().outcome) == ("published", "nothing new")
    first, second = night.history.read().decisions[-2:]
    assert first.details["windows"] == second.details["windows"] == [day(4)]
    assert linked(root)[0] == day(4)


def test_windows_of_missed_nights_are_all_checked(root, night):
    night.pipeline.deliver_days(6, {4: {"shift": 1000}})
    assert night.run().outcome == "refused"
    [decision] = night.history.read().decisions[-1:]
    assert decision.details["windows"] == [day(4), day(5)]
    assert decision.details["refused_windows"] == [day(4)]


def test_a_raised_limit_decides_a_refused_night_again(root, night):
    night.pipeline.deliver_days(5, {4: {"n_sessions": 100}})
    refused = night.run()
    assert refused.status == 4
    assert "2.5 x the sessions expected of it" in refused.why
    write_params(root, {"max_session_change": 3.0})
    assert night.run().outcome == "published"


def test_a_log_that_download_refuses_holds_everything_and_is_recorded_once(root, night):
    night.pipeline.deliver(["refuse"])
    for _ in range(2):
        outcome = night.run()
        assert (outcome.status, outcome.window) == (4, day(3))
        assert "too many defects" in outcome.why
    assert kinds(night).count("refused") == 1
    assert linked(root) == [day(3), day(2)]
    night.pipeline.deliver_days(5)
    assert night.run().outcome == "published"


def test_a_model_that_does_not_answer_is_held(root):
    after_nights(root, 4)
    night = pretended_night(root, faults=2)
    night.pipeline.deliver_days(5)
    outcome = night.run()
    assert (outcome.outcome, outcome.status) == ("held", 3)
    assert failed(night) == ["smoke_sessions"]
    assert linked(root) == [day(3), day(2)]


@pytest.mark.long
def test_a_sudden_fall_is_held_and_the_next_night_is_published(root):
    after_nights(root, 5)
    night, [fell] = run_nights(root, 6, first=6, levels={(1, day(5)): 40})
    assert fell.status == 3
    assert "max_fall" in failed(night)
    night, [after] = run_nights(root, 7, first=7, levels={(1, day(5)): 40})
    assert after.outcome == "published"


@pytest.mark.parametrize(("level", "outcome"), [(5, "held"), (2, "published")])
def test_changed_settings_are_compared_with_those_before_over_the_same_windows(
    root, level, outcome
):
    after_nights(root, 4)
    write_params(root, {"max_fall": None}, training={"epochs": 2})
    night = pretended_night(root, levels={2: level})
    night.pipeline.deliver_days(5)
    assert night.run().outcome == outcome
    assert "over 3 windows" in reasons(night)["max_settings_loss"]
    assert failed(night) == (["max_settings_loss"] if outcome == "held" else [])


def test_settings_that_were_held_are_compared_until_they_are_accepted(root):
    after_nights(root, 4)
    write_params(root, training={"epochs": 2})
    night = pretended_night(root, levels={2: 5})
    for n_days in (5, 6):
        night.pipeline.deliver_days(n_days)
        assert night.run().status == 3
        assert failed(night) == ["max_settings_loss"]
    write_params(root, {"max_settings_loss": None}, training={"epochs": 2})
    assert night.run().outcome == "published"
    write_params(root, training={"epochs": 2})
    night.pipeline.deliver_days(7)
    assert night.run().outcome == "published"
    assert "max_settings_loss" not in reasons(night)


def test_settings_with_other_targets_are_not_compared(root):
    after_nights(root, 4)
    write_params(root, {"metric": "recall_at_20"}, training={"epochs": 2})
    night = pretended_night(root, levels={2: 5})
    night.pipeline.deliver_days(5)
    assert night.run().outcome == "published"
    assert "no window has figures" in reasons(night)["max_settings_loss"]


def test_a_dry_run_leaves_no_trace(root):
    night = after_nights(root, 3)
    night.pipeline.deliver_days(4)
    before = (root / "nights/history.jsonl").read_bytes()
    outcome = night.run(dry_run=True)
    assert (outcome.outcome, outcome.why[:7]) == ("published", "dry run")
    assert (root / "nights/history.jsonl").read_bytes() == before
    assert linked(root) == [day(2), day(1)]


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"nightly": {"metric": "ndcg_at_7"}}, "add its cutoff"),
        ({"window": {"last": "2026-01-03"}}, "set window.last to null"),
        ({"training": {"fit_last": False}}, "training.fit_last to true"),
    ],
)
def test_settings_that_do_not_suit_nights_are_refused(root, sections, message):
    write_params(root, **sections)
    with pytest.raises(ConfigError, match=message):
        pretended_night(root).run()


def test_rollback_swaps_and_the_withdrawn_model_is_not_published_again(root, night):
    outcome = night.rollback("clicks fell")
    assert outcome.status == 0
    assert linked(root) == [day(2), day(3)]
    [(name, reason)] = night.history.read().withdrawn.items()
    assert (name[:10], reason) == (day(3), "clicks fell")
    assert night.run().outcome == "nothing new"
    night.rollback("it was not the model")
    assert linked(root) == [day(3), day(2)]
    assert night.history.read().withdrawn == {}


def test_a_withdrawn_model_that_comes_again_is_held(root, night, monkeypatch):
    night.rollback("clicks fell")
    monkeypatch.setattr(
        "dayahead.nightly.night.model_name", lambda *_: night.history.read().published[1]
    )
    night.pipeline.deliver_days(5)
    assert night.run().status == 3
    assert failed(night) == ["withdrawn"]


def test_there_is_nothing_to_roll_back_to_at_first(root):
    night = after_nights(root, 2)
    with pytest.raises(ConfigError, match="no previous model"):
        night.rollback("why not")


def test_two_nights_at_once_are_refused(root):
    night = pretended_night(root)
    with night.alone(), pytest.raises(RetryLaterError, match="at work"):
        night.run()


def test_a_lost_history_leaves_what_is_served(root, night):
    (root / "nights/history.jsonl").unlink()
    held = pretended_night(root, faults=2)
    held.pipeline.deliver_days(5)
    assert held.run().status == 3
    assert linked(root) == [day(3), day(2)]
    assert night.run().outcome == "nothing new"
    assert linked(root) == [day(3), day(2)]


def test_dropped_windows_are_in_the_history_once(root, night, monkeypatch):
    add_windows(monkeypatch, "dropped", "3 sessions")
    assert [night.run().outcome for _ in range(2)] == ["nothing new"] * 2
    [entry] = [e for e in night.history.read().entries if e.kind == "skipped"]
    assert (entry.window, entry.why) == (day(4), "3 sessions")
