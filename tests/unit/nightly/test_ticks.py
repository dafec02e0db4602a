"""Nights of a model that counts within the window: they read the metrics of the live model."""

import json
import shutil
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from dayahead.config.params import load_params
from dayahead.core.errors import ConfigError
from dayahead.nightly.night import Night
from dayahead.outputs.tables import read_ranks, read_windows
from dayahead.train.stage import train
from dayahead.train.study import Study
from support.live_windows import LIVE, spread_sessions
from support.pretended_nights import PretendedPipeline, linked, run_nights, write_params
from support.results_folders import result_of, write_baselines
from support.window_folders import day, markov_days

CUTOFFS = [10, 20]
GUARDS = {"max_popularity_drift": None, "max_session_change": None, "max_top_item": None,
          "max_new_items": None}  # fmt: skip


def busy_day(number):
    """Sessions over the same items every day, of which every second ends with one of the day."""
    sessions = markov_days(number + 1, 48, 30)[number]
    return [[*each, 1000 + number] if row % 2 else each for row, each in enumerate(sessions)]


@dataclass(frozen=True)
class RealPipeline(PretendedPipeline):
    """Delivers days from a file, and fits real models on them."""

    def update_data(self):
        super().update_data()
        spread_sessions(self.root / "data/windows", timedelta(minutes=30))

    def train(self):
        root = self.root
        study = Study(
            params=load_params(root / "params.yaml"),
            windows=root / "data/windows",
            results=root / "results",
            models=root / "models",
            cache=root / "cache",
        )
        train(study)
        windows = [row.window for row in read_windows(study.results / "windows.csv", CUTOFFS)]
        worse = {name: self._worse(read_ranks(study.results, name).ranks) for name in windows}
        write_baselines(
            study.results, [result_of(name, ranks) for name, ranks in worse.items()], worse
        )
        if (root / "damage").exists():
            damage(study.models)

    @staticmethod
    def _worse(ranks):
        return [rank and rank + 4 for rank in ranks.tolist()]


def damage(models):
    """Turn the head's scores around."""
    path = models / "model.safetensors"
    tensors = load_file(path)
    for name in ("linear", "out"):
        tensors[f"weights.memory.head.{name}"] *= -1
    save_file(tensors, path)


def live_night(root, n_days, **sections):
    """Deliver so many days to a project whose settings are `sections`; return its night."""
    root.mkdir(exist_ok=True)
    write_params(root, GUARDS, **{**LIVE, **sections})
    night = Night(root, RealPipeline(root, {}))
    night.pipeline.deliver([busy_day(number) for number in range(n_days)])
    return night


@pytest.fixture(scope="module")
def three_days(tmp_path_factory):
    """A project after two nights."""
    root = tmp_path_factory.mktemp("nights") / "project"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DVC_ROOT", str(root))
        outcomes = [live_night(root, n_days).run() for n_days in (2, 3)]
    assert [each.outcome for each in outcomes] == ["published"] * 2, outcomes
    return root


@pytest.fixture
def project(root, three_days):
    shutil.copytree(three_days, root, symlinks=True, dirs_exist_ok=True)
    return root


def newest(night):
    return night.history.read().decisions[-1]


def why(night, guard):
    return next(each["why"] for each in newest(night).checks if each["guard"] == guard)


@pytest.mark.long
def test_decisions_are_on_the_live_metric(project):
    night = live_night(project, 4)
    outcome = night.run()
    assert (outcome.outcome, outcome.window) == ("published", day(3))
    assert linked(project) == [day(3), day(2)]
    ranks = read_ranks(project / "results", day(3)).ranks
    assert np.count_nonzero(ranks == 0) == 1  # the day's item, which is none before it has come
    [*_, row] = read_windows(project / "results/windows.csv", CUTOFFS)
    assert newest(night).metrics["champion"] == row.metrics["ndcg_at_20"]
    assert "sessions answered" in why(night, "smoke_sessions")
    assert night.run().outcome == "nothing new"


@pytest.mark.long
def test_the_page_says_until_when_the_served_model_has_counted(project):
    night = live_night(project, 4)
    night.run()
    page = night.history.page.read_text()
    rules = "live.tick 30min and live.session_gap 30min"
    assert f"has counted up to 2026-01-05 00:00 UTC, by {rules}" in page
    assert newest(night).details["live"]["until"] == "2026-01-05 00:00 UTC"


@pytest.mark.long
def test_a_damaged_model_is_held_for_its_live_metric(project):
    (project / "damage").touch()
    night = live_night(project, 4)
    assert night.run().status == 3
    failed = [each["guard"] for each in newest(night).checks if not each["passed"]]
    assert failed == ["max_refresh_fall"]
    assert linked(project) == [day(2), day(1)]


@pytest.mark.long
def test_another_tick_needs_a_trial_or_a_word_and_is_compared_by_its_own(project):
    night = live_night(project, 4, live={"tick": "2h"})
    with pytest.raises(ConfigError, match=r"live\.tick 30min -> 2h\. Restore.*--adopt"):
        night.run()
    night.run(adopt=True)
    said = "(counts every 30min; that of the settings counts every 2h)"
    assert said in why(night, "champion_margin")


@pytest.mark.long
@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("30min", 0, "(counts every 30min; that of the settings stands still within the window)"),
        (0, "30min", "(stands still within the window; that of the settings counts every 30min)"),
    ],
)
def test_a_model_with_ticks_is_compared_with_one_that_has_none(root, before, after, said):
    live_night(root, 3, live={"tick": before}).run()
    night = live_night(root, 4, live={"tick": after})
    with pytest.raises(ConfigError, match=rf"live\.tick {before} -> {after}"):
        night.run()
    night.run(adopt=True)
    assert said in why(night, "champion_margin")
    is_better = newest(night).kind == "published"
    assert is_better == bool(after)


def test_a_challenger_may_set_a_tick(root):
    own = {"architecture": "memory"}
    write_params(root, {"challengers": {"live": {"live": {"tick": "1h"}}}}, model=own)
    night, _ = run_nights(root, 3)
    [enrolled] = [e for e in night.history.read().entries if e.kind == "enrolled"]
    assert enrolled.details["settings"]["live.tick"] == "1h"
    assert "<code>live.tick=1h</code>" in night.history.page.read_text()


def test_without_ticks_the_section_is_no_part_of_a_history(root):
    run_nights(root, 3)
    for line in (root / "nights/history.jsonl").read_text().splitlines():
        entry = json.loads(line)
        assert "live" not in entry["details"]
        assert not [
            name for name in entry["details"].get("settings", ()) if name.startswith("live.")
        ]
