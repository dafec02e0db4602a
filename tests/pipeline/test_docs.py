"""README and docs name only what exists, and their commands run.

A command block carries a comment: `run` (here), `run: slow` (in a clean clone with little data) or
`not run: reason`.
"""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest

from dayahead.__main__ import app
from dayahead.config.loading import read_yaml
from dayahead.config.params import Params, load_params
from dayahead.dataset.schema import DatasetConfig

ROOT = Path(__file__).parents[2]
DOCS = sorted((ROOT / "docs").glob("*.md"))
PAGES = [*(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")), *DOCS]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
BLOCK = re.compile(r"(?:^<!-- (?P<mark>[^>]*) -->\n)?^```bash\n(?P<text>.*?)^```$", re.M | re.S)
SLOW = "run: slow"
MARK = re.compile(r"run|run: slow|not run: .+")
CODE = re.compile(r"^```\w+\n.*?^```$|`[^`\n]+`", re.M | re.S)
TINY = {
    "datasets/synthetic.yaml": {"days: 15": "days: 3", "_day: 4000": "_day: 300"},
    "params.yaml": {"epochs: 5": "epochs: 1", "workers: auto": "workers: 1"},
}
"""What the clean clone changes, to take less time."""

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def text_of(page):
    return page.read_text(encoding="utf-8")


def code_of(page):
    return "\n".join(CODE.findall(text_of(page)))


def blocks(page, mark):
    found = [block for block in BLOCK.finditer(text_of(page)) if block["mark"] == mark]
    return "".join(block["text"] for block in found)


def generator():
    where = importlib.util.spec_from_file_location("pages", ROOT / "tools" / "settings_pages.py")
    module = importlib.util.module_from_spec(where)
    sys.modules["pages"] = module  # for its dataclasses
    where.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def settings():
    """Settings of params.yaml and of data set files: model.d_model, sessions.gap_minutes ..."""
    sections = [section for cls in (Params, DatasetConfig) for section in generator().sections(cls)]
    return {f"{each.key}.{field.name}" for each in sections for field in fields(each.cls)}


def test_the_readme_is_short():
    assert len(text_of(ROOT / "README.md").splitlines()) <= 150


def test_the_generated_pages_are_current():
    for name, text in generator().pages().items():
        assert text_of(ROOT / "docs" / name) == text, "run `make docs`"


def test_the_navigation_lists_every_page():
    config = tomllib.loads(text_of(ROOT / "zensical.toml"))
    listed = re.findall(r"'([\w-]+\.md)'", str(config["project"]["nav"]))
    assert sorted(listed) == [page.name for page in DOCS]


@each_page
def test_text_is_ascii(page):
    assert text_of(page).isascii()


@each_page
def test_every_command_block_says_whether_it_runs(page):
    marks = [block["mark"] for block in BLOCK.finditer(text_of(page))]
    assert [mark for mark in marks if mark is None or not MARK.fullmatch(mark)] == []


@each_page
def test_links_lead_to_files(page):
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", text_of(page))
    assert [target for target in targets if not (page.parent / target).exists()] == []


@each_page
def test_verbs_of_make_exist(page):
    verbs = set(re.findall(r"\bmake ([a-z]+(?:-[a-z]+)*)", code_of(page)))
    assert {verb for verb in verbs if f"\n{verb}:" not in MAKEFILE} == set()


@each_page
def test_commands_exist(page):
    commands = {command.callback.__name__ for command in app.registered_commands}
    assert set(re.findall(r"python -m dayahead (\w+)", code_of(page))) - commands == set()


@each_page
def test_settings_exist(page, settings):
    sections = {name.split(".")[0] for name in settings} - {""}
    named = set(re.findall(rf"(?<![\w/.])(?:{'|'.join(sections)})\.[a-z_]+\b", code_of(page)))
    files = {name for name in named if name.endswith((".py", ".yaml", ".safetensors"))}
    assert named - files - settings == set()


@each_page
def test_data_sets_and_presets_exist(page):
    code = code_of(page)
    names = {*re.findall(r"-S dataset=(\w+)", code), *re.findall(r"datasets/(\w+)\.yaml", code)}
    assert [n for n in names - {"mine"} if not (ROOT / "datasets" / f"{n}.yaml").is_file()] == []
    rows = {*re.findall(r"dayahead preset (\S+?)[)`\s]", code), *re.findall(r"`(g1/\S+)`", code)}
    assert [r for r in rows if r != "g1/*" and not (ROOT / "presets" / f"{r}.yaml").is_file()] == []


@each_page
def test_files_of_the_source_exist(page):
    rooms = {path.parent.name for path in (ROOT / "src" / "dayahead").glob("*/__init__.py")}
    tops = ["src", "stages", "tools", "benchmarks", "tests", "docs", "presets"]
    named = re.findall(rf"`((?:{'|'.join([*tops, *rooms])})/[\w./-]+)`", text_of(page))
    bases = (ROOT, ROOT / "src" / "dayahead")
    assert [name for name in named if not any((base / name).exists() for base in bases)] == []


def test_the_tree_of_rooms_is_whole():
    listed = re.findall(r"^  (\w+)/ ", text_of(ROOT / "docs" / "contributing.md"), re.M)
    rooms = [path.parent.name for path in (ROOT / "src" / "dayahead").glob("*/__init__.py")]
    assert sorted(listed) == sorted(rooms)


def test_the_workflow_calls_verbs_of_make():
    jobs = read_yaml(ROOT / ".github" / "workflows" / "ci.yaml")["jobs"]
    runs = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    assert runs
    assert [run for run in runs if f"\n{run.removeprefix('make ')}:" not in MAKEFILE] == []


STUBS = """
dvc() { [ "$1 $2" != "exp run" ] || printf '%s ' "${@:3}"; echo; }
for name in dask git make mlflow python source torchrun; do eval "$name() { :; }"; done
"""
"""What stands for the programs, to see their arguments as the shell makes them."""


@each_page
def test_experiments_have_valid_settings(page, tmp_path):
    """The values too, of commands that are not run; a list for --queue is none."""
    hydra = pytest.importorskip("dvc.utils.hydra")
    every = [block for block in BLOCK.finditer(text_of(page)) if block["mark"] not in ("run", SLOW)]
    texts = [block["text"] for block in every if "dvc exp run" in block["text"]]
    calls = run_script(STUBS + "".join(texts), tmp_path).splitlines() if texts else []
    for call in [call for call in calls if "--queue" not in call]:
        copy = tmp_path / "params.yaml"
        shutil.copy(ROOT / "params.yaml", copy)
        hydra.apply_overrides(str(copy), re.findall(r"-S (\S+)", call))
        load_params(copy)


def run_script(script, folder, **environment):
    env = {**os.environ, "PYTHONPATH": str(folder / "src"), **environment}
    command = ["bash", "-e", "-c", script]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def test_fast_commands_run():
    script = "".join(blocks(page, "run") for page in PAGES)
    assert "make repro" in run_script(script, ROOT)


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """A clean clone with little data, ready to run: its environment is this one."""
    folder = tmp_path_factory.mktemp("docs") / "dayahead"
    subprocess.run(["git", "clone", "-q", ROOT, folder], check=True)
    for name, changes in TINY.items():
        text = text_of(folder / name)
        for old, new in changes.items():
            assert old in text
            text = text.replace(old, new)
        (folder / name).write_text(text, encoding="utf-8")
    run_script("git config user.name Me; git config user.email me@localhost", folder)
    run_script("git commit -qam 'Less data'; git tag start", folder)
    (folder / ".venv").mkdir()
    for path in Path(sys.prefix).iterdir():
        if path.name != ".ready":
            (folder / ".venv" / path.name).symlink_to(path)
    (folder / ".venv" / ".ready").touch()
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [page for page in PAGES if blocks(page, SLOW)], ids=lambda page: page.name
)
def test_slow_commands_run_in_a_clean_clone(page, clone, tmp_path):
    run_script("git reset -q --hard start; git clean -qfd", clone)
    site = {"DVC_SITE_CACHE_DIR": str(tmp_path), "MLFLOW_TRACKING_URI": ""}
    run_script(blocks(page, SLOW), clone, **site)


@pytest.mark.slow
def test_the_site_builds_without_warnings(clone):
    """Broken links, anchors and names of the Python API are warnings, and --strict ends on one."""
    assert "No issues found" in run_script("make docs 2>&1", clone)
    assert (clone / "build" / "docs" / "index.html").is_file()
