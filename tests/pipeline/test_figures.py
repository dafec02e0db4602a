"""Results in the documentation are what the commands beside them give, or recorded in two pages."""

import re
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest

from support.tools import load_tool

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results.md"
LOG = ROOT / "docs" / "results-log.md"
PROTOCOL = ROOT / "docs" / "protocol.md"
FIRST_HOUR = int(datetime(2017, 10, 2, tzinfo=UTC).timestamp()) // 3600
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
FIGURE = re.compile(r"(?<![\w.\[])0?\.\d{3,4}\b")
RECORDED = re.compile(r"^## Recorded\n(.*?)^## ", re.M | re.S)
SUMMARY = """
Running stage 'train':
AOD           ndcg_at_10    ndcg_at_20    recall_at_20
gpt2              0.2401        0.2591          0.4818
popularity        0.0600        0.0701          1.0000

14 windows evaluated. Report: results/report.html
"""
TABLE = """| model | NDCG@20 | recall@20 |
|---|---|---|
| `gpt2` | .259 | .482 |
| `popularity` | .0701 | 1.0000 |"""


@pytest.fixture(scope="module")
def tool():
    return load_tool("docs_figures")


def text_of(page):
    return page.read_text(encoding="utf-8")


def differences(printed, measured):
    """The rows of two tables whose words differ, or a figure by more than its last digit."""

    def words(row):
        return re.sub(r"\d*\.\d+", "#", row)

    def units(row):
        found = re.findall(r"\d*\.\d+", row)
        return [round(float(figure) * 10 ** len(figure.partition(".")[2])) for figure in found]

    rows = zip(printed.splitlines(), measured.splitlines(), strict=True)
    return [
        (old, new)
        for old, new in rows
        if words(old) != words(new)
        or any(abs(a - b) > 1 for a, b in zip(units(old), units(new), strict=True))
    ]


def test_a_summary_becomes_a_table(tool):
    assert tool.as_markdown(SUMMARY) == TABLE


def test_figures_agree_to_the_last_digit():
    assert differences(TABLE, TABLE.replace(".0701", ".0702")) == []
    assert differences(TABLE, TABLE.replace(".259", ".260")) == []
    assert differences(TABLE, TABLE.replace(".0701", ".0703")) != []
    assert differences(TABLE, TABLE.replace("gpt2", "llama")) != []


def test_a_table_is_written_below_its_commands(tool, monkeypatch):
    commands = "```bash\nother\n```\n```bash\nmake a  # b\n```\n"
    page = f"{commands}<!-- figures -->\nold\n<!-- end of figures -->"
    monkeypatch.setattr(tool, "table_of", lambda commands: f"new of {commands.strip()}")
    assert tool.renewed(page) == page.replace("old", "new of make a")
    monkeypatch.delenv("DAYAHEAD_DATA", raising=False)
    real = page.replace("make a", "dvc exp run -S dataset=g1")
    assert tool.renewed(real) == real


def test_results_are_rerun_or_recorded_in_one_place(tool):
    """Elsewhere nothing would notice that a figure is no longer true."""

    def strewn(page):
        if page == LOG:
            return []
        text = re.sub(r"`[^`\n]+`", "", tool.FIGURES.sub("", text_of(page)))
        if page == RESULTS:
            text = RECORDED.sub("", text)
        return FIGURE.findall(text)

    assert {page.name: found for page in PAGES if (found := strewn(page))} == {}


def test_recorded_results_have_command_commit_and_date():
    introduction, *sections = re.split(r"^### ", RECORDED.search(text_of(RESULTS))[1], flags=re.M)
    of_the_log, *logged = re.split(r"^## ", text_of(LOG), flags=re.M)
    for text in (introduction, of_the_log):
        assert "two cores without a GPU" in text
    for section in [*sections, *logged]:
        assert re.search(r"Commits? `[0-9a-f]{7}`", section), section
        assert re.search(r"\b2026-\d\d-\d\d\b", section), section
        assert "```bash" in section, section


@pytest.mark.slow
def test_commands_give_the_results_beside_them(tool):
    wrong = {}
    for page in tool.PAGES:
        before = tool.FIGURES.finditer(text_of(page))
        after = tool.FIGURES.finditer(tool.renewed(text_of(page)))
        for old, new in zip(before, after, strict=True):
            if found := differences(old["table"], new["table"]):
                wrong[old["commands"]] = found
    assert wrong == {}, "run `python tools/docs_figures.py`"


@pytest.mark.slow
def test_the_share_of_events_past_their_hour(real_data):
    hour = 3_600_000
    days = pl.scan_csv(real_data / "g1-news" / "clicks-*.csv.gz").collect()
    time, start = pl.col("click_timestamp"), pl.col("click_timestamp").min().over("session_id")
    of_g1 = days.select(time // hour, first=start // hour)
    hours = of_g1.filter(pl.col("first").is_between(*(FIRST_HOUR + n for n in (0, 47))))
    share = (hours["click_timestamp"] > hours["first"]).mean()
    said = f"the first 48 hours of G1, {share:.1%}".replace("%", " %")
    assert said in " ".join(text_of(PROTOCOL).split())
