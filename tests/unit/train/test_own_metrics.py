"""A metric of another package through a study: tables, report, comparison, cache, nights."""

import json
import sys

import pytest

from dayahead import compare
from dayahead.aggregate.findings import Folders
from dayahead.aggregate.stage import aggregate
from dayahead.aggregate.summary import summarize_run
from dayahead.comparison.rows import parse_row
from dayahead.comparison.table import result_table
from dayahead.config.params import flat_settings, load_params
from dayahead.core.errors import ComparisonError, ConfigError, DataError
from dayahead.metrics.metrics import mean
from dayahead.outputs.tables import ranked_windows, read_windows
from dayahead.train.compared_baselines import train_baselines
from dayahead.train.run import Run
from dayahead.train.stage import train
from dayahead.tune.search import _metric
from support.project_copy import ROOT
from support.results_folders import write_raw_manifest, write_run
from support.tiny_settings import ranks_of, tiny_params, tiny_study
from support.user_packages import MODULE
from support.window_folders import markov_days, write_window_folder

OWN = {"evaluation": {"metrics": ["rbp"]}, "model": {"architecture": "transitions"}}
WITHOUT = {**OWN, "evaluation": {"metrics": []}}


@pytest.fixture(scope="module")
def windows(tmp_path_factory):
    return write_window_folder(tmp_path_factory.mktemp("windows"), markov_days(4, 40, 15))


def by_hand(ranks, cutoff):
    return mean([0.2 * 0.8 ** (rank - 1) if 0 < rank <= cutoff else 0.0 for rank in ranks.tolist()])


@pytest.mark.long
def test_it_stands_wherever_ours_do(shop_models, windows, tmp_path):
    study, seen = tiny_study(windows, tmp_path / "out", OWN), []
    train(study, on_window=seen.append)
    averages = train_baselines(study)
    write_raw_manifest(tmp_path / "raw")
    folders = Folders(study.results, windows, tmp_path / "raw")
    found = aggregate(folders, study.params.evaluation.cutoffs, flat_settings(study.params))
    names = ranked_windows(study.results)
    expected = [by_hand(ranks_of(tmp_path / "out", name), 5) for name in names]
    rows = read_windows(study.results / "windows.csv", [1, 5], ["rbp"])
    assert [row.metrics["rbp_at_5"] for row in rows] == pytest.approx(expected, rel=1e-12)
    assert [each["metrics"]["rbp_at_5"] for each in seen] == [r.metrics["rbp_at_5"] for r in rows]
    aod = json.loads((study.results / "aod.json").read_text())
    assert aod["aod"]["rbp_at_5"] == pytest.approx(mean(expected), rel=1e-12)
    assert {"rbp_at_1", "rbp_at_5"} <= aod["session_mean"].keys() & aod["ci95"].keys()
    assert "popularity_aod_rbp_at_5" in averages
    assert "rbp@5" in (study.results / "report.html").read_text()
    assert found.summary.aod["rbp_at_1"] < found.summary.aod["rbp_at_5"]
    text = summarize_run(study.params, tmp_path / "out").text("")
    assert f"{mean(expected):.4f}" in text


def test_runs_are_compared_by_it_whether_they_had_it_or_not(shop_models, windows, tmp_path):
    folders = []
    for name, sections in (("a", WITHOUT), ("b", OWN)):
        study = tiny_study(windows, tmp_path / name, sections)
        train(study)
        folders.append(study.results)
    compared = compare(*folders, cutoffs=[5], metrics=["rbp"])
    [found] = [each for each in compared.metrics if each.name == "rbp_at_5"]
    assert found.a == found.b > 0
    table = result_table([parse_row(str(each)) for each in folders], ["rbp_at_5", "ndcg_at_5"])
    assert table.rows[0].cells[0].aod == pytest.approx(found.a)
    with pytest.raises(ComparisonError, match=r"no such metric.*rbp_at_20"):
        result_table([parse_row(str(folders[0]))], ["rpb_at_5"])


def test_what_the_runs_recorded_is_in_the_table_and_the_comparison(shop_models, tmp_path):
    days = {f"2026-01-0{day}": [day, 2] for day in range(1, 7)}
    recorded = {"evaluation.cutoffs": [5], "evaluation.metrics": ["rbp", "gone"]}
    for name, settings in (("a", recorded), ("b", None)):
        write_run(tmp_path / name, days, settings)
    section = load_params(ROOT / "params.yaml").evaluation
    rows = [(name, [str(tmp_path / name)]) for name in "ab"]
    names = [f"{kind}_at_5" for kind in ("recall", "ndcg", "mrr", "rbp")]
    assert result_table(rows, section).metrics == names
    assert result_table(rows[1:], section).metrics[:2] == ["recall_at_10", "recall_at_20"]
    compared = compare(tmp_path / "a", tmp_path / "b", cutoffs=[5])
    assert [each.name for each in compared.metrics] == names


def test_neither_the_setting_nor_the_source_fits_or_ranks_again(
    shop_models, windows, tmp_path, fits, monkeypatch
):
    ranked, evaluate = [], Run.evaluate
    monkeypatch.setattr(Run, "evaluate", lambda *a: ranked.append(a[1]) or evaluate(*a))
    cache = tmp_path / "cache"
    train(tiny_study(windows, tmp_path / "a", WITHOUT, cache=cache))
    n_fits, n_ranked = len(fits), len(ranked)
    assert min(n_fits, n_ranked) > 0
    train(tiny_study(windows, tmp_path / "b", OWN, cache=cache))
    shop_models.write_text(shop_models.read_text().replace("0.8", "0.75"))
    sys.modules.pop(MODULE)
    train(tiny_study(windows, tmp_path / "c", OWN, cache=cache))
    assert (len(fits), len(ranked)) == (n_fits, n_ranked)
    values = [
        read_windows(tmp_path / name / "results" / "windows.csv", [5], ["rbp"])[0].metrics
        for name in "bc"
    ]
    assert values[0]["rbp_at_5"] != values[1]["rbp_at_5"]
    assert values[0]["ndcg_at_5"] == values[1]["ndcg_at_5"]


def test_aggregate_says_that_the_package_has_changed(shop_models, windows, tmp_path):
    study = tiny_study(windows, tmp_path / "out", OWN)
    train(study)
    train_baselines(study)
    shop_models.write_text(shop_models.read_text().replace("0.8", "0.75"))
    sys.modules.pop(MODULE)
    folders = Folders(study.results, windows, tmp_path / "raw")
    with pytest.raises(DataError, match=r"rbp_at_1 is .*the package of the metric.*repro -f train"):
        aggregate(folders, study.params.evaluation.cutoffs, flat_settings(study.params))


def test_a_search_and_a_night_may_name_it(shop_models):
    params = tiny_params({**OWN, "nightly": {"metric": "rbp_at_5"}})
    assert _metric("rbp_at_1", params) == "rbp_at_1"
    with pytest.raises(ConfigError, match=r"expected one of .*rbp_at_5"):
        _metric("rbp_at_20", params)
