"""What is predicted is a setting of the champion: a night does not change it by itself."""

import pytest

from dayahead.core.errors import ConfigError
from dayahead.nightly.succession import champion_settings
from support.pretended_nights import PretendedModel, after_nights, write_params
from support.results_folders import window_ranks
from support.tiny_settings import tiny_params
from support.window_folders import day


def test_other_targets_need_a_word_and_are_not_compared(root, monkeypatch):
    night = after_nights(root, 3)
    write_params(root, events={"targets": ["purchase"]})
    night.pipeline.deliver_days(4)
    with pytest.raises(ConfigError, match=r"events\.targets None -> \['purchase'\].*--adopt"):
        night.run()
    monkeypatch.setattr(PretendedModel, "ranks", lambda *_: window_ranks([1] * 50))
    assert night.run(adopt=True).outcome == "published"
    checks = {each["guard"]: each for each in night.history.read().decisions[-1].checks}
    assert not checks["champion_margin"]["checked"]
    assert f"the published {day(2)}" in checks["champion_margin"]["why"]
    assert "predicts other targets" in checks["champion_margin"]["why"]


def test_events_are_in_a_history_where_they_are_set():
    assert not any(name.startswith("events.") for name in champion_settings(tiny_params()))
    weighted = champion_settings(tiny_params({"events": {"weights": {"view": 1, "cart": 3}}}))
    assert weighted["events.weights"] == {"view": 1, "cart": 3}
    assert "events.targets" not in weighted
