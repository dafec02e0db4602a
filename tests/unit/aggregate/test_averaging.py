"""The average over days, computed by hand, and its interval."""

from dataclasses import replace

import numpy as np
import pytest

from dayahead.aggregate.averaging import average
from dayahead.metrics.metrics import window_metrics
from support.results_folders import result_of
from support.user_packages import MODULE


def test_the_average_over_days_weights_windows_equally():
    # Windows of 1, 2 and 5 sessions with recall 1, 1/2 and 0.
    ranks = [np.array(window) for window in ([1], [1, 9], [9, 9, 9, 9, 0])]
    rows = [result_of(f"2019-10-0{day}", each, (1,)) for day, each in enumerate(ranks, start=1)]
    summary = average(rows, ranks)
    assert summary.aod["recall_at_1"] == 0.5
    assert summary.session_mean["recall_at_1"] == 2 / 8
    assert (summary.n_windows, summary.n_sessions) == (3, 8)


def test_the_interval_of_a_metric_of_a_package_has_no_ends(install):
    """Its values may be below 0 or above 1; ours may not."""
    source = "def metric(ranks, cutoff):\n    return -1.0 * ranks\n"
    install(source, {"dayahead.metrics": {"cost": f"{MODULE}:metric"}})
    arrays = [np.array(ranks) for ranks in ([1], [1], [2], [1], [1], [2])]
    names = [f"2019-10-0{day}" for day in range(1, 7)]
    rows = [
        replace(result_of(name, ranks, (1,)), metrics=window_metrics(ranks, [1], ["cost"]))
        for name, ranks in zip(names, arrays, strict=True)
    ]
    found = average(rows, arrays)
    assert found.aod["cost_at_1"] == found.session_mean["cost_at_1"] == -8 / 6
    low, high = found.ci95["cost_at_1"]
    assert low < -8 / 6 < high
    assert low + high == pytest.approx(2 * -8 / 6)
    assert found.ci95["recall_at_1"][1] == 1.0
