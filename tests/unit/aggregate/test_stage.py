"""The files that `aggregate` writes, and its errors."""

import json
import re
from html.parser import HTMLParser

import pytest

from dayahead.aggregate.stage import aggregate
from dayahead.core.errors import DataError, WindowError
from dayahead.metrics.tables import window_result, write_ranks, write_windows
from support.results_folders import CUTOFFS, window_ranks, write_listing, write_results

SETTINGS = {
    "dataset": "g1<b>",
    "model.architecture": "gpt2",
    "model.features": ("price", "hour"),
    "evaluation.candidates": "seen",
    "training.fit_last": True,
    "window.first": None,
}
DAYS = {f"2019-10-0{day}": [day, 0, 2 * day, 1] for day in range(2, 8)}


def write_folders(folder):
    results = write_results(folder / "results", DAYS, train_loss=5.5)
    return results, write_listing(folder / "windows", ["2019-10-01", *DAYS, "2019-10-08"])


def run(folders):
    return aggregate(*folders, CUTOFFS, SETTINGS)


@pytest.fixture
def folders(tmp_path):
    return write_folders(tmp_path)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Results folder that `aggregate` has written to; tests only read it."""
    folders = write_folders(tmp_path_factory.mktemp("aggregated"))
    run(folders)
    return folders[0]


def test_aod_json_has_the_documented_content(written):
    content = json.loads((written / "aod.json").read_text())
    assert list(content) == ["aod", "ci95", "session_mean", "n_windows", "n_sessions"]
    assert (content["n_windows"], content["n_sessions"]) == (6, 24)
    # Every day: 4 sessions, 3 within the first 10 up to day 5, 2 on days 6 and 7.
    assert content["aod"]["recall_at_10"] == pytest.approx((4 * 3 / 4 + 2 * 2 / 4) / 6)
    low, high = content["ci95"]["recall_at_10"]
    assert low < content["aod"]["recall_at_10"] < high


def test_the_transformers4rec_export(written):
    lines = (written / "eval_results_avg_over_days.txt").read_text().splitlines()
    assert lines[0] == "recall_at_10_AOD = 0.666667"
    head, first, *_ = (written / "eval_train_results_dates.csv").read_text().splitlines()
    assert head.startswith("date,eval_recall_at_10,eval_recall_at_20,eval_ndcg_at_10")
    assert head.endswith(",train_loss")
    assert first.startswith("2019-10-02,0.75,0.75,")
    assert first.endswith(",5.5")


def test_train_metrics_are_exported(tmp_path, folders):
    train = {f"{kind}_at_{k}": 0.5 for kind in ("recall", "ndcg", "mrr") for k in CUTOFFS}
    results = write_results(tmp_path / "r", DAYS, train_loss=5.5, train_metrics=train)
    aggregate(results, folders[1], CUTOFFS, SETTINGS)
    head, first, *_ = (results / "eval_train_results_dates.csv").read_text().splitlines()
    assert head.endswith("train_mrr_at_10,train_mrr_at_20,train_loss")
    assert head.count("train_recall_at_") == 2
    assert first.endswith(",0.5,0.5,0.5,0.5,0.5,0.5,5.5")
    assert len(head.split(",")) == len(first.split(",")) == 14


def test_with_all_positions_means_are_over_targets(tmp_path, folders):
    results = write_results(tmp_path / "r", DAYS)
    found = window_ranks([1, 1, 0], session_ids=["a", "a", "b"], positions=[1, 2, 1])
    for window in DAYS:
        write_ranks(results, window, found)
    rows = [window_result(window, found, CUTOFFS, None, {}) for window in DAYS]
    write_windows(results / "windows.csv", rows)
    summary = aggregate(results, folders[1], CUTOFFS, SETTINGS)
    assert summary.n_sessions == 12
    assert summary.aod["recall_at_10"] == summary.session_mean["recall_at_10"] == 2 / 3
    assert "33.33 % of all targets" in (results / "report.html").read_text()


def test_the_same_input_gives_the_same_bytes(folders, written):
    run(folders)
    first, second = (
        {path.name: path.read_bytes() for path in results.iterdir() if path.is_file()}
        for results in (folders[0], written)
    )
    assert first == second


class Page(HTMLParser):
    """Collects ids and text, and checks that every tag is closed."""

    VOID = frozenset({"meta", "path", "use", "rect", "br"})

    def __init__(self):
        super().__init__()
        self.ids, self.open, self.text = [], [], []

    def handle_starttag(self, tag, attrs):
        self.ids += [value for name, value in attrs if name == "id"]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


@pytest.fixture(scope="module")
def page(written):
    page = Page()
    page.source = (written / "report.html").read_text()
    page.feed(page.source)
    return page


def test_the_report_is_self_contained(page):
    assert not re.search(r"https?:|//[a-z]|<script|<link|<img|@import", page.source)
    assert all(url.startswith("#") for url in re.findall(r"url\(([^)]*)\)", page.source))


def test_the_report_is_well_formed_and_its_ids_are_unique(page):
    assert page.open == []
    assert len(page.ids) == len(set(page.ids))


def test_charts_use_the_colours_of_the_page(page):
    drawings = page.source[page.source.index("<svg") :]
    assert not re.search(r"(stroke|fill): #", drawings)


def test_the_report_contains_the_results(page):
    text = re.sub(r"\s+", " ", " ".join(page.text))
    for expected in (
        "g1<b>, gpt2", "24 sessions in 6 windows", "Recall@10", "0.6667", "neighbouring windows",
        "25.00 % of all targets", "dropped overrun", "the log <ends> before", "price, hour",
        "Training loss", "3 Oct",
    ):  # fmt: skip
        assert expected in text


def test_the_report_of_a_few_hours_without_training_loss(tmp_path):
    hours = {"2019-10-01T13": [1, 2], "2019-10-01T14": [0, 2]}
    results = write_results(tmp_path / "results", hours)
    windows = write_listing(tmp_path / "windows", ["2019-10-01T12", *hours], unit="hour")
    summary = aggregate(results, windows, CUTOFFS, SETTINGS)
    report = (results / "report.html").read_text()
    assert set(summary.ci95.values()) == {None}
    assert "Average over hours" in report
    assert "13h" in report
    assert "<h3>Training loss" not in report


def test_a_changed_metric_is_rejected(folders):
    path = folders[0] / "windows.csv"
    path.write_text(path.read_text().replace("2019-10-04,4,0.25,0.75", "2019-10-04,4,0.25,0.5"))
    with pytest.raises(DataError, match=r"window 2019-10-04: recall_at_10 is 0\.5, .* 0\.75"):
        run(folders)


def test_changed_ranks_are_rejected(folders):
    write_ranks(folders[0], "2019-10-05", window_ranks([1, 1, 1]))
    with pytest.raises(DataError, match=r"window 2019-10-05: n_sessions is 4, .* give 3"):
        run(folders)


def test_a_window_without_ranks_is_rejected(folders):
    (folders[0] / "ranks" / "2019-10-05.parquet").unlink()
    with pytest.raises(DataError, match="only one of them: 2019-10-05"):
        run(folders)


def test_a_missing_windows_json_is_rejected(folders):
    (folders[1] / "windows.json").unlink()
    with pytest.raises(WindowError, match=r"windows\.json"):
        run(folders)
