"""The tutorials are notebooks whose code compiles, names what exists, and runs."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import jupytext
import pytest

from dayahead.config.loading import read_yaml
from dayahead.config.params import load_params
from support.tools import TOOLS, load_tool

ROOT = Path(__file__).parents[2]
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
HEAD = TUTORIALS[0].read_text(encoding="utf-8").partition("# ")[0]
SECONDS = 90
"""What a tutorial may take on two cores that do nothing else."""
BUSY = 8
"""How many times longer it may take here, where other tests run."""
LONG = "word " * 30 + "end"
each_tutorial = pytest.mark.parametrize("tutorial", TUTORIALS, ids=lambda path: path.stem)


def cells_of(tutorial):
    """Code of a notebook, as ("bash" | "python", text)."""
    found = []
    for cell in jupytext.read(tutorial).cells:
        if cell.cell_type == "code":
            is_bash = cell.source.startswith("%%bash\n")
            found.append(
                ("bash", cell.source.partition("\n")[2]) if is_bash else ("python", cell.source)
            )
    return found


def code_of(tutorial, language):
    return "\n".join(text for kind, text in cells_of(tutorial) if kind == language)


@each_tutorial
def test_its_experiments_have_valid_settings(tutorial, tmp_path):
    hydra = pytest.importorskip("dvc.utils.hydra")
    for call in re.findall("^dvc exp run .*", code_of(tutorial, "bash"), re.M):
        copy = tmp_path / "params.yaml"
        shutil.copy(ROOT / "params.yaml", copy)
        hydra.apply_overrides(str(copy), re.findall(r"-S (\S+)", call))
        load_params(copy)


@each_tutorial
def test_its_edits_of_settings_find_what_they_replace(tutorial):
    """`sed` that finds nothing says nothing."""
    patterns = re.findall(r"sed -i 's/(.*?)/.* params\.yaml", code_of(tutorial, "bash"))
    text = (ROOT / "params.yaml").read_text(encoding="utf-8")
    assert [pattern for pattern in patterns if not re.search(pattern, text, re.M)] == []


@pytest.mark.long
def test_a_copy_is_small_and_leaves_the_project_alone(tmp_path):
    """Its settings are valid, and commands run there, with no other project's cache or server."""
    project = tmp_path / "project"
    load_tool("docs_figures").clone_project(project)
    script = (
        "import json, os, subprocess; from copy_project import copy_project;"
        "folder = copy_project(); git = ['git', 'status', '--short'];"
        "print(json.dumps([str(folder), os.getcwd(), dict(os.environ),"
        "subprocess.run(git, capture_output=True, text=True).stdout]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=project / "docs" / "tutorials",
        env={**os.environ, "DAYAHEAD_ROOT": "/elsewhere", "MLFLOW_TRACKING_URI": "http://server"},
        capture_output=True,
        text=True,
        check=True,
    )
    folder, working, variables, changes = json.loads(done.stdout)
    assert (working, changes) == (folder, "")
    assert not {"DAYAHEAD_ROOT", "MLFLOW_TRACKING_URI"} & {*variables}
    assert variables["PYTHONPATH"] == f"{folder}/src"
    assert not Path(folder).exists()
    status = subprocess.run(
        ["git", "status", "--short"], cwd=project, capture_output=True, text=True, check=True
    )
    assert status.stdout == ""


def test_the_small_settings_are_valid(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "tutorials"))
    copy_project = pytest.importorskip("copy_project")
    for name in ("datasets", "params.yaml"):
        copied = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copied(ROOT / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    copy_project.write_small_settings()
    params = load_params(tmp_path / "params.yaml")
    assert (params.training.epochs, params.tracking.log_model) == (1, False)
    assert read_yaml(tmp_path / "datasets" / "synthetic.yaml")["source"]["synthetic"]["days"] == 8


@pytest.mark.slow
def test_outputs_follow_the_code_that_gave_them(tmp_path):
    """Executed by a kernel: text, a table, a chart, a result, and code of bash."""
    tool = load_tool("tutorials")
    source = tmp_path / "small.md"
    cells = [
        "# Small",
        f"```bash\necho one\necho '{LONG}'\necho '{LONG}   3'\n```",
        "```python\nimport pandas as pd\npd.DataFrame({'n': [1]})\n```",
        "```python\n%matplotlib inline\n_ = pd.Series([1, 2]).plot()\n```",
        "Text.",
        "```python\n6 * 7\n```",
        "```text\nnot code\n```",
    ]
    source.write_text(HEAD + "\n\n".join(cells) + "\n", encoding="utf-8")
    tool.write_page(tool.execute(source, tmp_path / "out"), "small", tmp_path / "out")
    page = (tmp_path / "out" / "small.md").read_text(encoding="utf-8")
    assert page.startswith("# Small\n\n```bash\necho one\n")
    assert "```\n\n```text\none\nword" in page
    assert f"\n{LONG}   3\n```" in page, "rows of tables keep their line"
    assert f"\n{LONG}\n" not in page
    (table,) = re.findall(r"<table>.*</table>", page, re.DOTALL)
    assert "<td>1</td>" in table
    assert '<div class="output">' in page
    assert not re.search(r"^\s|^$", table, re.M), "it would end there, or become code"
    (image,) = re.findall(r"!\[.*?\]\((.*?)\)", page)
    assert (tmp_path / "out" / image).read_bytes().startswith(b"\x89PNG")
    assert "Text.\n\n```python\n6 * 7\n```\n\n```text\n42\n```\n\n```text\nnot code\n```" in page


@pytest.mark.long
@pytest.mark.parametrize(
    "code",
    [
        "```bash\nfalse\necho on\n```",
        *(
            pytest.param(f"```python\n{code}\n```", marks=pytest.mark.slow)
            for code in ("1 / 0", "import time; time.sleep(60)", "import os; os._exit(1)")
        ),
    ],
)
def test_a_cell_that_fails_ends_the_tutorial(tmp_path, monkeypatch, capsys, code):
    tool = load_tool("tutorials")
    monkeypatch.setattr(tool, "SECONDS_PER_CELL", 20)
    monkeypatch.setenv("SHELLOPTS", "errexit")
    (tmp_path / "broken.md").write_text(f"{HEAD}{code}\n\n```python\n1\n```\n", encoding="utf-8")
    monkeypatch.setattr(tool, "TUTORIALS", tmp_path)
    monkeypatch.setattr(tool, "OUTPUT", tmp_path / "out")
    monkeypatch.setattr(sys, "argv", ["tutorials.py"])
    assert tool.main() == 1
    assert "broken: error: " in capsys.readouterr().out
    assert not (tmp_path / "out" / "broken.md").exists()


def test_the_site_shows_current_outputs_only(tmp_path):
    tool = load_tool("site_pages")
    (tmp_path / "docs" / "tutorials").mkdir(parents=True)
    (tmp_path / "build" / "tutorials").mkdir(parents=True)
    for name in ("current", "older", "never"):
        (tmp_path / "docs" / "tutorials" / f"{name}.md").write_text("code")
    for name in ("current", "older"):
        (tmp_path / "build" / "tutorials" / f"{name}.md").write_text("code and output")
    (tmp_path / "build" / "tutorials" / "current-3-0.png").touch()
    os.utime(tmp_path / "build" / "tutorials" / "older.md", (0, 0))
    assert tool.collect(tmp_path) == ["never", "older"]
    pages = tmp_path / "build" / "pages" / "tutorials"
    assert (pages / "current.md").read_text() == "code and output"
    assert (pages / "older.md").read_text() == "code"
    assert (pages / "current-3-0.png").is_file()


@pytest.mark.slow
@each_tutorial
def test_a_tutorial_runs(tutorial, tmp_path):
    """In a clean clone of the last commit."""
    project = tmp_path / "project"
    load_tool("docs_figures").clone_project(project)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, TOOLS.relative_to(ROOT) / "tutorials.py", tutorial.stem],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS * BUSY,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (project / "build" / "tutorials" / f"{tutorial.stem}.md").is_file()
