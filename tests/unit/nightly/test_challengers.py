"""Challengers: enrolled, decided once, reported until they are promoted or removed."""

import pytest

from dayahead.config.loading import read_yaml
from dayahead.core.errors import ConfigError
from dayahead.nightly.pipeline import StageError
from dayahead.nightly.promotion import promote
from support.pretended_nights import (
    linked,
    pretended_night,
    run_nights,
    write_params,
)
from support.window_folders import day

CHALLENGER = {"challengers": {"other": {"training": {"epochs": 2}}}}


def trial_of(root, levels, n_days=9, **more):
    write_params(root, CHALLENGER | more)
    return run_nights(root, n_days, levels=levels)


def ends(night):
    found = [e for e in night.history.read().entries if e.kind == "succession"]
    return [(e.details["outcome"], e.window) for e in found]


def run_names(root):
    """Folders of challengers' runs, which begin with a hash of settings, then the champion's."""
    names = [path.name for path in (root / ".dayahead/nightly").iterdir()]
    return sorted(names, key=lambda name: (name.startswith("champion"), name))


@pytest.mark.long
def test_a_better_challenger_wins_once_when_its_horizon_is_full_and_is_promoted(root):
    night, outcomes = trial_of(root, {2: 1}, n_days=8)
    assert [each.status for each in outcomes] == [0] * 6 + [10]
    assert ends(night) == [("won", day(7))]
    for outcome in (outcomes[6], night.run()):
        assert (outcome.outcome, outcome.challenger) == ("won", "other")
        assert "--promote other" in outcome.why
    diff = promote(root, "other", night.history.read())
    assert "epochs: 2" in diff.replace('"', "")
    params = read_yaml(root / "params.yaml")
    assert params["training"]["epochs"] == 2
    assert params["nightly"]["challengers"] == {}
    night, [outcome] = run_nights(root, 9, first=9, levels={2: 1})
    assert outcome.outcome == "published"
    [champion] = [e for e in night.history.read().entries if e.kind == "champion"][1:]
    assert champion.why == f"the settings of other, which won on {day(7)}"


@pytest.mark.slow
def test_a_challenger_that_wins_on_a_held_night_is_reported_by_the_next(root):
    trial_of(root, {2: 1}, n_days=7)
    held, [outcome] = run_nights(root, 8, first=8, levels={2: 1}, faults=2)
    assert outcome.status == 3
    assert ends(held) == [("won", day(7))]
    night = pretended_night(root, {2: 1})
    assert night.run().status == 10
    night, [outcome] = run_nights(root, 9, first=9, levels={2: 1})
    assert outcome.status == 10


@pytest.mark.slow
def test_a_worse_challenger_ends_at_half_of_its_horizon(root):
    night, _ = trial_of(root, {2: 9}, horizon=10, n_days=6)
    names = run_names(root)
    assert [name.rpartition("-")[2] for name in names] == ["1", "2", "2"]
    assert [name.startswith("champion") for name in names] == [False, False, True]
    night, outcomes = run_nights(root, 9, first=7, levels={2: 9})
    assert {each.status for each in outcomes} == {0}
    assert ends(night) == [("futile", day(6))]
    assert [*(root / ".dayahead/nightly").iterdir()] == []
    with pytest.raises(ConfigError, match="no challenger that won"):
        promote(root, "other", night.history.read())


@pytest.mark.slow
def test_a_run_of_an_open_trial_stays_where_another_trial_ends(root):
    """Both challengers are compared with the same runs of the champion, each trained once."""
    challengers = {"other": {"training": {"epochs": 2}}, "third": {"training": {"epochs": 3}}}
    write_params(root, {"challengers": challengers, "horizon": 10})
    night, _ = run_nights(root, 7, levels={2: 9})
    assert ends(night) == [("futile", day(6))]
    names = run_names(root)
    assert [name.rpartition("-")[2] for name in names] == ["1", "2", "2"]
    write_params(root)
    run_nights(root, 8, first=8)
    assert [*(root / ".dayahead/nightly").iterdir()] == []


def test_each_run_differs_in_its_seed_alone(root, monkeypatch):
    seen = {}

    def challenge(self, name, changes):
        seen[name] = changes
        return self.root / "results"

    monkeypatch.setattr("support.pretended_nights.PretendedPipeline.challenge", challenge)
    trial_of(root, {}, n_days=2)
    assert list(seen.values()) == [
        {"training": {"seed": 2}},
        {"training": {"epochs": 2, "seed": 1}},
        {"training": {"epochs": 2, "seed": 2}},
    ]


@pytest.mark.long
def test_a_challenger_waits_where_the_year_has_had_its_trials(root, caplog):
    challengers = {name: {"training": {"epochs": n}} for n, name in enumerate("abc", start=2)}
    write_params(root, {"challengers": challengers, "trials_per_year": 2})
    night, outcomes = run_nights(root, 4)
    assert {each.outcome for each in outcomes} == {"published"}
    enrolled = [e for e in night.history.read().entries if e.kind == "enrolled"]
    assert [e.details["challenger"] for e in enrolled] == ["a", "b"]
    assert [e.details["error"] for e in enrolled] == [0.0125, 0.0125]
    assert "challenger c is not enrolled yet: 2 trials were enrolled" in caplog.text
    assert "enrolled from 2027-01-02 on" in caplog.text


@pytest.mark.slow
def test_a_winner_whose_settings_were_edited_afterwards_has_not_won(root):
    night, _ = trial_of(root, {2: 1})
    write_params(root, {"challengers": {"other": {"training": {"epochs": 3}}}})
    assert night.run().outcome == "nothing new"
    before = (root / "params.yaml").read_bytes()
    with pytest.raises(ConfigError, match=r"no challenger that won.*none has won yet"):
        promote(root, "other", night.history.read())
    assert (root / "params.yaml").read_bytes() == before


@pytest.mark.long
def test_a_challenger_that_fails_leaves_the_nights_alone(root, monkeypatch):
    def fails(self, trial, changes):
        raise StageError("no memory")

    monkeypatch.setattr("support.pretended_nights.PretendedPipeline.challenge", fails)
    night, outcomes = trial_of(root, {})
    assert {each.outcome for each in outcomes} == {"published"}
    assert ends(night) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"training": {"seed": 1}}, "its settings are the champion's"),
        ({"training": {"seed": 2}}, "another training.seed alone, which is luck"),
        ({"training": {"seed": 2, "epochs": 1}}, "another training.seed alone, which is luck"),
        ({"training": {"sed": 1}}, "did you mean seed"),
        ({"window": {"grace": 1}}, "changes window; expected"),
        ({}, "changes nothing"),
        ({"model": 3}, "expected a mapping"),
    ],
)
def test_invalid_challengers_end_before_the_night(root, changes, message):
    write_params(root, {"challengers": {"odd": changes}})
    night = pretended_night(root)
    night.pipeline.deliver_days(2)
    with pytest.raises(ConfigError, match=message):
        night.run()
    assert not (root / "data").exists()


@pytest.mark.long
def test_a_rollback_does_not_wait_for_challengers(root, monkeypatch):
    """The night was killed while it trained one; the model it published is withdrawn at once."""
    write_params(root, CHALLENGER)
    night, _ = run_nights(root, 4)

    def killed(self, trial, changes):
        raise KeyboardInterrupt

    monkeypatch.setattr("support.pretended_nights.PretendedPipeline.challenge", killed)
    night.pipeline.deliver_days(5)
    with pytest.raises(KeyboardInterrupt):
        night.run()
    assert linked(root) == [day(4), day(3)]
    write_params(root, {"challengers": {"odd": {"training": {"sed": 1}}}})  # a mistake
    assert night.rollback("bad").outcome == "rolled back"
    assert linked(root) == [day(3), day(4)]
