"""The files that `aggregate` writes, and its errors."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise

import numpy as np
import pytest

from dayahead.aggregate.stage import aggregate
from dayahead.config.metric_names import BUILT_IN
from dayahead.core.errors import DataError, WindowError
from dayahead.outputs.ranks_by_window import write_baseline_ranks
from dayahead.outputs.tables import (
    window_result,
    write_evidence,
    write_ranks,
    write_windows,
)
from support.results_folders import (
    CUTOFFS,
    DAYS,
    SETTINGS,
    result_of,
    window_ranks,
    write_baselines,
    write_listing,
    write_results,
    write_run_folders,
    write_sessions,
)
from support.window_folders import bytes_in

N_LEGENDS = len(BUILT_IN) + 1  # of each metric's chart, and of the differences
TWO = {"s0": [4, 2], "s1": [4, 3]}


def run(folders, settings=SETTINGS):
    return aggregate(folders, CUTOFFS, settings)


@pytest.fixture
def folders(tmp_path):
    return write_run_folders(tmp_path, train_loss=5.5)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Results folder that `aggregate` has written to; tests only read it."""
    folders = write_run_folders(tmp_path_factory.mktemp("aggregated"), train_loss=5.5)
    run(folders)
    return folders.results


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


def test_train_metrics_are_exported(tmp_path):
    train = {f"{kind}_at_{k}": 0.5 for kind in BUILT_IN for k in CUTOFFS}
    folders = write_run_folders(tmp_path, train_loss=5.5, train_metrics=train)
    run(folders)
    head, first, *_ = (folders.results / "eval_train_results_dates.csv").read_text().splitlines()
    assert head.endswith("train_mrr_at_10,train_mrr_at_20,train_loss")
    assert head.count("train_recall_at_") == 2
    assert first.endswith(",0.5,0.5,0.5,0.5,0.5,0.5,5.5")
    assert len(head.split(",")) == len(first.split(",")) == 2 * len(train) + 2


def test_with_all_positions_means_are_over_targets(tmp_path):
    folders = write_run_folders(tmp_path, sessions={"a": [2, 3, 4], "b": [5, 6]})
    results = folders.results
    found = window_ranks([1, 1, 0], session_ids=["a", "a", "b"], positions=[1, 2, 1])
    for window in DAYS:
        write_ranks(results, window, found)
    rows = [window_result(window, found, CUTOFFS, None, {}) for window in DAYS]
    write_windows(results / "windows.csv", rows)
    write_baselines(results, rows, {day: [1, 1, 0] for day in DAYS})
    summary = run(folders).summary
    assert summary.n_sessions == 12
    assert summary.aod["recall_at_10"] == summary.session_mean["recall_at_10"] == 2 / 3
    assert "33.33 % of all targets" in (results / "report.html").read_text()


def test_the_same_input_gives_the_same_bytes(folders, written):
    run(folders)
    assert bytes_in(folders.results) == bytes_in(written)


class Page(HTMLParser):
    """Collects ids and text, and checks that every tag is closed."""

    VOID = frozenset({"meta", "path", "use", "rect", "br"})

    def __init__(self):
        super().__init__()
        self.ids, self.tags, self.open, self.text, self.headings = [], [], [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        self.ids += [value for name, value in attrs if name == "id"]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def page_of(results):
    page = Page()
    page.source = (results / "report.html").read_text()
    page.feed(page.source)
    return page


def text_of(page):
    return re.sub(r"\s+", " ", " ".join(page.text))


@pytest.fixture(scope="module")
def page(written):
    return page_of(written)


def test_the_report_is_self_contained(page):
    assert not re.search(r"https?:|//[a-z]|<script|<link|<img|@import", page.source)
    assert all(url.startswith("#") for url in re.findall(r"url\(([^)]*)\)", page.source))


def test_the_report_is_well_formed_and_its_ids_are_unique(page):
    assert page.open == []
    assert len(page.ids) == len(set(page.ids))


def test_headings_descend_by_one(page):
    assert page.headings[0] == 1
    assert page.headings.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(page.headings))


def test_a_screen_reader_finds_its_way(page):
    named = {tag: [attrs for each, attrs in page.tags if each == tag] for tag, _ in page.tags}
    assert named["html"] == [{"lang": "en"}]
    assert len(named["main"]) == 1
    assert all(len(svg["aria-label"]) > 20 and svg["role"] == "img" for svg in named["svg"])
    assert len(named["caption"]) == len(named["table"])
    assert all(th["scope"] in ("col", "row") for th in named["th"])
    links = [link["href"] for link in named["a"]]
    assert links[0] == "#result"
    assert {link.removeprefix("#") for link in links} <= set(page.ids)
    scrolled = [div for div in named["div"] if "scroll" in div.get("class", "").split()]
    assert scrolled
    assert all(div["tabindex"] == "0" and div["aria-label"] for div in scrolled)


def test_the_theme_and_print_have_rules_of_their_own(page):
    assert "@media (prefers-color-scheme: dark)" in page.source
    assert "@media print" in page.source


def test_charts_use_the_colours_of_the_page(page):
    drawings = page.source[page.source.index("<svg") :]
    assert not re.search(r"(stroke|fill): #", drawings)


def test_the_report_contains_the_results(page):
    text = text_of(page)
    for expected in (
        "g1<b>, gpt2", "24 sessions in 6 windows", "Recall@10", "0.6667", "resemble their",
        "25.00 % of all targets", "dropped overrun", "the log <ends> before", "price, hour",
        "Mean loss of each fit", "3 Oct",
    ):  # fmt: skip
        assert expected in text


def test_the_report_compares_with_the_baselines(page):
    text = text_of(page)
    assert "gpt2 is above popularity in these windows. NDCG@20 is 0.4398 against 0.2419" in text
    assert "higher in 6 of 6. gpt2 is above transitions in these windows." in text
    # Recall@10 of a baseline is 3/4 twice, 2/4 three times and 1/4: 0.1250 less. Differences 0, 0,
    # 1/4, 1/4, 0, 1/4 have the error .0503 by three cosines; t of 3 degrees of freedom is 3.182.
    tested = "+0.1250 -0.0350 to +0.2850, higher in 3 of 6"
    assert f"Recall@10 0.6667 0.5417 0.5417 0.5417 {tested} {tested} {tested}" in text
    best = re.findall(r'<td class="n strong">([\d.]+)</td>', page.source)
    assert best[:4] == ["0.6667", "0.7500", "0.7500", "0.7500"]  # recall@20 is the same of all
    assert page.source.count(">popularity</text>") == N_LEGENDS


def test_the_report_of_a_baseline_compares_with_the_others(folders):
    run(folders, SETTINGS | {"model.architecture": "transitions"})
    page = page_of(folders.results)
    assert "transitions is above popularity in these windows." in text_of(page)
    assert "above transitions" not in text_of(page)
    assert page.source.count(">popularity</text>") == page.source.count(">own</text>") == N_LEGENDS
    assert page.source.count(">transitions</text>") == N_LEGENDS - 1


@pytest.mark.slow
def test_what_a_better_baseline_and_few_windows_show(folders, tmp_path):
    best = [result_of(window, [1, 0, 1, 1]) for window in DAYS]
    write_baselines(folders.results, best, {day: [1, 0, 1, 1] for day in DAYS})
    run(folders)
    assert "gpt2 is below popularity in these windows." in text_of(page_of(folders.results))
    write_windows(folders.results / "baselines" / "popularity.csv", [*best[:3], *own_rows()[3:]])
    run(folders)
    assert "gpt2 and popularity: no clear difference in these windows." in text_of(
        page_of(folders.results)
    )
    few = write_results(tmp_path / "few", dict([*DAYS.items()][:4]))
    run(replace(folders, results=few))
    assert "too few windows to tell" in text_of(page_of(few))


def own_rows():
    return [result_of(window, ranks) for window, ranks in DAYS.items()]


def test_the_report_shows_what_a_head_has_learned(folders, page):
    assert "Evidence" not in text_of(page)
    weights = {f"pair.{number}": (-1) ** number * number / 8 for number in range(18)}
    write_evidence(folders.results / "evidence.csv", weights)
    run(folders)
    shown, folded = text_of(page_of(folders.results)).split("The other 3 features")
    assert "Feature Weight pair.17 -2.125 pair.16 +2.000" in shown
    assert shown.rstrip().endswith("pair.3 -0.375")
    assert "pair.2 +0.250 pair.1 -0.125 pair.0 +0.000" in folded


def test_a_window_without_ranks_is_rejected(folders):
    (folders.results / "ranks" / "2019-10-05.parquet").unlink()
    with pytest.raises(DataError, match="only one of them: 2019-10-05"):
        run(folders)


@pytest.mark.parametrize(
    "name",
    ["baselines/transitions.csv", "baselines/popularity.parquet"],
)
def test_a_missing_file_is_rejected(folders, name):
    """tests/unit/outputs/test_damaged_results.py has damaged ones."""
    (folders.results / name).unlink()
    with pytest.raises(DataError, match=rf"{name}: .*; run `dvc repro -f train`"):
        run(folders)


@pytest.mark.parametrize(
    "ranks", [{}, {"2019-10-03": [7, 0, 0, 5]}, {"2019-10-03": [7, 0, 10]}], ids=str
)
def test_ranks_of_another_baseline_are_rejected(folders, ranks):
    every = {window: np.array(own) for window, own in (DAYS | ranks).items()}
    if not ranks:
        del every["2019-10-07"]
    write_baseline_ranks(folders.results, "popularity", every)
    with pytest.raises(DataError, match=r"popularity\.parquet: expected .* found others; run"):
        run(folders)


def test_ranks_of_other_sessions_are_rejected(folders):
    write_sessions(folders.windows, "day", "2019-10-04", {f"t{i}": [2, 3] for i in range(4)})
    with pytest.raises(DataError, match=r"2019-10-04\.parquet: expected the test sessions of .*"):
        run(folders)


def test_results_of_other_windows_are_rejected(folders, tmp_path):
    windows = write_listing(tmp_path / "w", ["2019-10-01", *[*DAYS][:-1], "2019-10-08"])
    with pytest.raises(DataError, match=r"expected kept windows of .*, found 2019-10-07; run"):
        run(replace(folders, windows=windows))


def test_a_missing_windows_json_is_rejected(folders):
    (folders.windows / "windows.json").unlink()
    with pytest.raises(WindowError, match=r"windows\.json"):
        run(folders)
