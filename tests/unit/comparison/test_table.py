"""A table of results: numbers by hand, marks as `compare` finds them, three formats."""

import csv
import shutil
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from dayahead.__main__ import app
from dayahead.comparison.rows import parse_row
from dayahead.comparison.table import Cell, ResultTable, TableRow, result_table
from dayahead.comparison.table_formats import formatted
from dayahead.core.errors import ComparisonError, ConfigError
from dayahead.outputs.tables import write_ranks
from dayahead.statistics.intervals import holm
from dayahead.statistics.paired_tests import compare
from support.project_copy import ROOT
from support.results_folders import window_ranks, write_run
from support.simulated_runs import improved

DAYS = [f"2019-10-{day:02d}" for day in range(1, 9)]
GAINS = {"gru": 0.0, "stan_x": 0.0, "memory": 0.4}
SEEDS = (1, 2, 3)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Three runs of each of three settings: one is far better, two differ by noise alone."""
    root, random = tmp_path_factory.mktemp("runs"), np.random.default_rng(3)
    shared = {day: random.integers(1, 40, 60) for day in DAYS}
    for name, gain in GAINS.items():
        for seed in SEEDS:
            ranks = improved(random, shared, gain, 0.05)
            known = {"dataset": "g1", "model.architecture": name, "training.seed": seed}
            write_run(root / f"{name}-{seed}", ranks, known)
    return root


@pytest.fixture
def inside(runs, monkeypatch):
    monkeypatch.chdir(runs)
    monkeypatch.setenv("DVC_ROOT", str(ROOT))
    return [f"{name}-{seed}" for name in GAINS for seed in SEEDS]


def printed(*words):
    done = CliRunner().invoke(app, ["table", *words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def table_of(texts, *options):
    return result_table([parse_row(text) for text in texts], *options)


def test_means_are_over_windows_and_runs(tmp_path):
    for seed, ranks in enumerate(([1, 4], [2, 5])):
        write_run(tmp_path / f"a-{seed}", {"2019-10-02": ranks, "2019-10-03": [1]}, None)
    table = table_of([f"a={tmp_path}/a-0,{tmp_path}/a-1"], ["recall_at_1", "mrr_at_4"])
    [row] = table.rows
    assert (table.n_sessions, table.n_targets, row.name) == (3, 3, "a")
    assert row.cells[0].aod == pytest.approx(((1 / 2 + 1) / 2 + (0 + 1) / 2) / 2)
    assert row.cells[1].aod == pytest.approx((((1 + 1 / 4) / 2 + 1) / 2 + (1 / 4 + 1) / 2) / 2)
    assert row.cells[0].ci95 is None


@pytest.mark.parametrize("baseline", [None, "stan_x"])
def test_p_values_are_those_of_compare_adjusted_for_all_tests(inside, baseline):
    table = table_of(inside, ["ndcg_at_20"], baseline)
    folders = {name: [Path(f"{name}-{seed}/results") for seed in SEEDS] for name in GAINS}

    def p(a, b):
        [found] = [each for each in compare(folders[a], folders[b], [20]).metrics
                   if each.name == "ndcg_at_20"]  # fmt: skip
        return found.test.p

    by_hand = {
        frozenset(pair): p(*pair)
        for pair in (("gru", "stan_x"), ("gru", "memory"), ("stan_x", "memory"))
        if baseline is None or baseline in pair
    }
    adjusted = dict(zip(by_hand, holm([*by_hand.values()]), strict=True))
    reference = baseline or "memory"
    for row in table.rows:
        [cell] = row.cells
        assert cell.p == (
            pytest.approx(adjusted[frozenset((row.name, reference))])
            if row.name != reference
            else None
        )
        assert cell.is_best == (row.name == "memory")


def test_csv_has_every_digit_of_the_table(inside):
    rows = list(csv.DictReader(StringIO(printed(*inside, "--format", "csv"))))
    table = table_of(inside, ["recall_at_10", "ndcg_at_20"])
    assert [row["row"] for row in rows] == [*GAINS]
    for read, row in zip(rows, table.rows, strict=True):
        assert (read["runs"], read["windows"], read["targets"]) == ("3", "8", "480")
        for metric, cell in zip(table.metrics, row.cells, strict=True):
            assert float(read[metric]) == cell.aod
            assert (float(read[f"{metric}_low"]), float(read[f"{metric}_high"])) == cell.ci95
            assert read[f"{metric}_p"] == ("" if cell.p is None else repr(cell.p))


def test_markdown(inside):
    lines = printed(*inside, "--metrics", "ndcg_at_20,recall_at_5").splitlines()
    assert [cell.strip() for cell in lines[0].split("|")[3:5]] == ["NDCG@20", "Recall@5"]
    [best] = [line for line in lines if line.startswith("| memory")]
    [worse] = [line for line in lines if line.startswith("| stan\\_x")]
    assert best.count("**") == 4
    assert "\\*" not in best
    assert worse.count("\\*") == 2
    notes = " ".join(lines[lines.index("") + 1 :])
    assert "Means over 8 windows (2019-10-01 to 2019-10-08), equally weighted, of 480" in notes
    assert "\\*: differs from the best at level 0.05" in notes
    assert "Holm's method for all pairs of rows" in notes


def test_intervals_and_a_baseline(inside):
    text = printed(*inside, "--metrics", "ndcg_at_20", "--intervals", "--baseline", "gru")
    table = table_of(inside, ["ndcg_at_20"], "gru")
    low, high = table.rows[0].cells[0].ci95
    assert f"{table.rows[0].cells[0].aod:.4f} ± {(high - low) / 2:.4f} |" in text
    assert "differs from gru at level" in text
    assert "for all other rows" in text.replace("\n", " ")
    [near] = [line for line in text.splitlines() if line.startswith("| stan")]
    assert "\\*" not in near


def test_latex_is_escaped(tmp_path):
    cells = [Cell(0.25, (0.2, 0.3), 0.01), Cell(0.5, None, is_best=True)]
    rows = [TableRow("a_b & 50% #1", ["x", "y"], cells), TableRow("z", ["z"], cells)]
    table = ResultTable(["ndcg_at_5", "mrr_at_5"], rows, None, 0.05, DAYS, 9, 9)
    text = formatted(table, "latex", has_intervals=True)
    assert text.startswith("\\begin{tabular}{lrrr}\n\\toprule\n & runs & NDCG@5 & MRR@5 \\\\\n")
    line = r"a\_b \& 50\% \#1 & 2 & 0.2500 $\pm$ 0.0500$^{*}$ & \textbf{0.5000} \\"
    assert f"\\midrule\n{line}\n" in text
    assert r"half of the 95 \% interval" in text.replace("\n", " ")
    assert "\\bottomrule\n\\end{tabular}\n" in text


@pytest.mark.parametrize("format_", ["markdown", "latex"])
def test_one_run_or_few_windows_have_no_marks(inside, tmp_path, format_):
    single = printed("gru-1", "memory-1", "--format", format_)
    assert "Not tested, as they have a single run: gru-1, memory-1." in single.replace("\n", " ")
    assert "differs" not in single
    for name in "ab":
        write_run(tmp_path / name, {"2019-10-02": [1, 2]}, None)
    few = printed(str(tmp_path / "a"), str(tmp_path / "b"), "--format", format_, "--intervals")
    assert "No tests and intervals: they take 5 windows or more." in few.replace("\n", " ")


def test_the_table_is_written_to_a_file(inside, tmp_path):
    path = tmp_path / "new" / "table.tex"
    assert printed(*inside, "--format", "latex", "--output", str(path)) == (
        f"{path}: 3 rows of 9 runs\n"
    )
    assert path.read_text() == printed(*inside, "--format", "latex")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--metrics", "ndcg_at_0"], "^--metrics ndcg_at_0: no such metric; expected recall_at_20"),
        (["--metrics", "hits"], "^--metrics hits: no such metric"),
        (["--metrics", ""], "^--metrics : no such metric"),
        (["--baseline", "gru4"], r"^--baseline gru4: no row has this name; did you mean gru\?"),
        (["--level", "1"], "^--level 1.0: expected a number between 0 and 1"),
        (["--baseline", "x"], "expected one of gru, stan_x, memory$"),
    ],
)
def test_options_that_name_nothing_are_refused(inside, options, message):
    done = CliRunner().invoke(app, ["table", *inside, *options])
    with pytest.raises((ComparisonError, ConfigError), match=message):
        raise done.exception


def test_runs_over_other_windows_or_targets_are_refused(inside, tmp_path):
    shutil.copytree("gru-1", tmp_path / "other")
    write_ranks(
        tmp_path / "other/results", DAYS[0], window_ranks([1] * 60, targets=[*range(9, 69)])
    )
    with pytest.raises(ComparisonError, match=r"^gru-2 and .*other were .* different targets in 1"):
        table_of(["gru-2", f"x={tmp_path}/other"], ["ndcg_at_20"])
    (tmp_path / f"other/results/ranks/{DAYS[0]}.parquet").unlink()
    with pytest.raises(ComparisonError, match=r"different windows: 8 in gru-2 and 7 in .*other"):
        table_of(["gru-2", f"x={tmp_path}/other"], ["ndcg_at_20"])


def test_holm_by_hand():
    """Holm 1979: the smallest times 4, the next times 3 ..., never below the one before."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.4, 0.6]) == pytest.approx([0.8, 0.8])
    assert holm([]) == []


@settings(max_examples=50)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.floats(0.001, 0.2))
def test_holm_rejects_as_the_step_down_procedure_does(p_values, level):
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    rejected = set()
    for n_before, index in enumerate(order):
        if p_values[index] * (len(p_values) - n_before) > level:
            break
        rejected.add(index)
    assert {i for i, p in enumerate(holm(p_values)) if p <= level} == rejected
