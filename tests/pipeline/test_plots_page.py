"""The page of `dvc plots show`: complete in itself, and drawn without internet."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from dvc.config import Config
from dvc_render import VegaRenderer
from dvc_render.html import render_html

DVC = Path(__file__).parents[2] / ".dvc"
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")


def points(y="ndcg_at_20", name="2026-01-{:02}"):
    return [
        {"rev": rev, "window": name.format(day), y: (day + shift) / 40, "n_sessions": 9}
        for shift, rev in enumerate(["main", "wider"])
        for day in (2, 3, 5)
    ]


@pytest.fixture
def page(tmp_path):
    def page(rows, **properties):
        template = DVC / Config(str(DVC))["plots"]["html_template"]
        properties = {"template_dir": str(DVC / "plots"), "title": "A & B"} | properties
        plot = VegaRenderer(rows, "plot", **properties)
        return Path(render_html([plot], tmp_path / "index.html", html_template=template))

    return page


def of_windows(y="ndcg_at_20"):
    return {"template": "windows", "x": "window", "y": y}


def test_the_page_loads_nothing(page):
    text = page(points(), **of_windows()).read_text()
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=|@import|fetch\(|url\(", text)
    assert "vegaEmbed(" in text
    assert '"wider"' in text


def drawn(path):
    """The page's elements after its scripts have run in a browser without a network."""
    if BROWSER is None:
        pytest.skip("no Chromium on this machine")
    words = ["--headless", "--no-sandbox", "--disable-gpu", "--proxy-server=127.0.0.1:9"]
    words += [f"--user-data-dir={path.parent / 'profile'}", "--dump-dom", path.as_uri()]
    done = subprocess.run(
        [BROWSER, *words], capture_output=True, text=True, check=True, timeout=120
    )
    return done.stdout.partition("<main")[2]


@pytest.mark.long
@pytest.mark.parametrize("name", ["2026-01-{:02}", "2026-01-01T{:02}", "2026-01-01T00{:02}"])
def test_curves_are_drawn_without_internet(page, name):
    found = drawn(page(points(name=name), **of_windows()))
    assert found.count("<path d=") == 2
    assert found.count("<circle") == 6
    assert re.findall(r"</i>(\w+)</li>", found) == ["main", "wider"]
    assert "<h2>A &amp; B</h2>" in found
    assert "NaN" not in re.sub(r"<script.*?</script>", "", found, flags=re.DOTALL)
    labels = re.findall(r'text-anchor="middle">([^<]+)</text>', found)
    assert labels[0].startswith("2026-01-")


@pytest.mark.long
def test_the_last_window_and_the_ends_of_the_curve_are_labelled(page):
    rows = [
        {"rev": "main", "window": f"2026-01-{day:02}", "ndcg_at_20": 0.2663 + 0.0046 * (day == 9)}
        for day in range(2, 16)
    ]
    found = drawn(page(rows, **of_windows()))
    labels = re.findall(r'text-anchor="middle">([^<]+)</text>', found)
    assert labels[:-1] == ["2026-01-03", *(f"2026-01-{day:02}" for day in (6, 9, 12, 15))]
    heights = re.findall(r'text-anchor="end">([^<]+)</text>', found)
    assert float(heights[0]) <= 0.2663
    assert float(heights[-1]) >= 0.2709
    assert len(heights) in range(4, 9)
    assert heights == [*dict.fromkeys(heights)]


@pytest.mark.long
def test_templates_of_dvc_are_drawn_or_listed(page):
    rows = [row | {"step": n} for n, row in enumerate(points("loss"))]
    assert drawn(page(rows, template="scatter", x="step", y="loss")).count("<circle") == 6
    rows = [
        {"rev": "main", "actual": a, "predicted": b} for a, b in (("cat", "dog"), ("cat", "cat"))
    ]
    listed = drawn(page(rows, template="confusion", x="actual", y="predicted"))
    assert "<td>dog</td>" in listed
    assert "<svg" not in listed
