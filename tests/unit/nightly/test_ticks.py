"""Nights of a model that counts within the window: they read the metrics of the live model."""

from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import pytest

from dayahead.config.params import load_params
from dayahead.nightly.night import Night
from dayahead.outputs.tables import read_ranks, read_windows
from dayahead.train.stage import train
from dayahead.train.study import Study
from support.live_windows import LIVE, spread_sessions
from support.pretended_nights import PretendedPipeline, linked, write_params
from support.results_folders import result_of, write_baselines
from support.window_folders import day, markov_days

CUTOFFS = [10, 20]
GUARDS = {"max_session_change": None, "max_new_items": None}


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

    @staticmethod
    def _worse(ranks):
        return [rank and rank + 4 for rank in ranks.tolist()]


def live_night(root, n_days):
    """Deliver so many days to a project; return its night."""
    write_params(root, GUARDS, **LIVE)
    night = Night(root, RealPipeline(root, {}))
    night.pipeline.deliver([busy_day(number) for number in range(n_days)])
    return night


@pytest.fixture
def project(root):
    """A project after two nights."""
    outcomes = [live_night(root, n_days).run() for n_days in (2, 3)]
    assert [each.outcome for each in outcomes] == ["published"] * 2, outcomes
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
    assert newest(night).metrics["model"] == row.metrics["ndcg_at_20"]
    assert "sessions answered" in why(night, "smoke_sessions")
    assert night.run().outcome == "nothing new"
