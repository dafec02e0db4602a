"""README and docs name only what exists, and their commands run.

A command block carries a comment: `run` (here), `run: slow` (in a clean clone with little data) or
`not run: reason`.
"""

import os
import re
import shutil
import subprocess
import tempfile
import tomllib
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from dayahead.__main__ import app
from dayahead.config.loading import read_yaml
from dayahead.config.params import Params, load_params
from dayahead.dataset.schema import DatasetConfig, load_dataset
from dayahead.download.shop import events_of
from dayahead.presets import preset_names
from support.project_copy import clone_project
from support.window_folders import day

ROOT = Path(__file__).parents[2]
DOCS = sorted((ROOT / "docs").glob("*.md"))
PAGES = [*(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")), *DOCS]
ROOMS = [path.parent.name for path in (ROOT / "src" / "dayahead").glob("*/__init__.py")]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
BLOCK = re.compile(r"(?:^<!-- (?P<mark>[^>]*) -->\n)?^```bash\n(?P<text>.*?)^```$", re.M | re.S)
SLOW = "run: slow"
MARK = re.compile(r"run|run: slow|not run: .+")
CODE = re.compile(r"^```\w+\n.*?^```$|`[^`\n]+`", re.M | re.S)
TINY = {
    "datasets/synthetic.yaml": {"days: 15": "days: 3", "_day: 4000": "_day: 300"},
    "params.yaml": {"epochs: 3": "epochs: 1", "workers: auto": "workers: 1"},
}
"""What the clean clone changes, to take less time."""


def text_of(page):
    return page.read_text(encoding="utf-8")


def code_of(page):
    return "\n".join(CODE.findall(text_of(page)))


def blocks(page, mark):
    found = [block for block in BLOCK.finditer(text_of(page)) if block["mark"] == mark]
    return "".join(block["text"] for block in found)


def test_the_readme_is_short():
    assert len(text_of(ROOT / "README.md").splitlines()) <= 150


def test_every_file_names_the_version_of_this_release():
    """Python's packages have it from pyproject.toml; only a release changes the others."""
    version = tomllib.loads(text_of(ROOT / "pyproject.toml"))["project"]["version"]
    files = [ROOT / "CITATION.cff", ROOT / "CHANGELOG.md", *DOCS]
    pattern = r"^## (\d\S*)|^version: (\S+)|version = \{(\S+)\}"
    named = {str(file): re.findall(pattern, text_of(file), re.M)[:1] for file in files}
    found = {name: "".join(*each) for name, each in named.items() if each}
    assert found == dict.fromkeys(found, version)
    assert len(found) == 3


def test_the_navigation_lists_every_page():
    config = tomllib.loads(text_of(ROOT / "zensical.toml"))
    listed = re.findall(r"'([\w/-]+\.md)'", str(config["project"]["nav"]))
    pages = [str(page.relative_to(ROOT / "docs")) for page in DOCS]
    assert sorted(listed) == sorted(pages)


def violations(rule):
    """What a rule finds in each page that breaks it."""
    found = {page.name: rule(page) for page in PAGES}
    return {name: what for name, what in found.items() if what}


def test_every_command_block_says_whether_it_runs():
    def unmarked(page):
        marks = [block["mark"] for block in BLOCK.finditer(text_of(page))]
        return [mark for mark in marks if mark is None or not MARK.fullmatch(mark)]

    assert violations(unmarked) == {}


def test_links_lead_to_files():
    def broken(page):
        targets = re.findall(r"\]\((?!https?:)([^)#]+)", text_of(page))
        return [target for target in targets if not (page.parent / target).exists()]

    assert violations(broken) == {}


def test_verbs_of_make_exist():
    def unknown(page):
        verbs = set(re.findall(r"\bmake (?!build/)([a-z]+(?:-[a-z]+)*)", code_of(page)))
        return {verb for verb in verbs if f"\n{verb}:" not in MAKEFILE}

    assert violations(unknown) == {}


@pytest.mark.long
def test_item_ids_of_examples_are_in_the_embedded_log():
    known = set(events_of(load_dataset("synthetic").source.synthetic)["item_id"].to_pylist())

    def unknown(page):
        found = re.findall(r"(?:--session |recommend\(\[)(\d[\d, ]*)", code_of(page))
        return [each for ids in found for each in ids.split(",") if int(each) not in known]

    assert violations(unknown) == {}


def test_commands_exist():
    commands = {command.callback.__name__ for command in app.registered_commands}

    def unknown(page):
        return (
            set(re.findall(r"(?<!namespace )\bdayahead (?!import)([a-z]\w+)", code_of(page)))
            - commands
        )

    assert violations(unknown) == {}


def keys_of(cls, section=""):
    """The dotted keys of a dataclass and of those in it."""
    hints = get_type_hints(cls)
    for field in fields(cls):
        yield f"{section}.{field.name}"
        inner = next(filter(is_dataclass, leaves(hints[field.name])), None)
        if inner is not None:
            name = f"{section}.{field.name}".lstrip(".")
            yield from keys_of(inner, name)


def leaves(hint):
    yield hint
    for part in get_args(hint):
        yield from leaves(part)


def test_settings_exist():
    """Of params.yaml and of data set files: model.d_model, sessions.gap_minutes ..."""
    known = {*keys_of(Params), *keys_of(DatasetConfig)}
    sections = "|".join({name.split(".")[0] for name in known} - {""})
    # A table of a notebook, a file, and the fields of a list in a record.
    others = {f"events.{name}" for name in ("groupby", "event_time", "sqlite", "item")}

    def unknown(page):
        named = set(re.findall(rf"(?<![\w/.])(?:{sections})\.[a-z_]+\b", code_of(page)))
        files = {
            name
            for name in named
            if name.endswith((".py", ".yaml", ".md", ".parquet", ".onnx", ".safetensors"))
        }
        return named - files - known - others

    assert violations(unknown) == {}


def test_data_sets_and_presets_exist():
    def unknown(page):
        code = code_of(page)
        names = {*re.findall(r"-S dataset=(\w+)", code), *re.findall(r"datasets/(\w+)\.yaml", code)}
        rows = {
            *re.findall(r"dayahead preset (\S+?)[)`\s]", code),
            *re.findall(r"`(g1/\S+)`", code),
        }
        files = [f"datasets/{name}.yaml" for name in names - {"mine"}]
        written = {row for row in rows if row.startswith("tuned/")}  # by `dayahead tune`
        missing = [file for file in files if not (ROOT / file).is_file()]
        return missing + sorted(rows - written - {"g1/*"} - {*preset_names(ROOT / "presets")})

    assert violations(unknown) == {}


def test_files_of_the_source_exist():
    folders = ("src", "stages", "tools", "benchmarks", "tests", "docs")
    tops = "|".join([*folders, "presets", "searches", "containers", *ROOMS])

    def missing(page):
        named = re.findall(rf"`((?:{tops})/[\w./-]+)`", text_of(page))
        bases = (ROOT, ROOT / "src" / "dayahead")
        presets = preset_names(ROOT / "presets")
        written = {"live/events.sqlite"}  # by services
        return [
            name
            for name in named
            if name not in written
            and not any((base / name).exists() for base in bases)
            and name not in presets
        ]

    assert violations(missing) == {}


def test_the_tree_of_rooms_is_whole():
    listed = re.findall(r"^  (\w+)/ ", text_of(ROOT / "docs" / "contributing.md"), re.M)
    assert sorted(listed) == sorted(ROOMS)


def test_the_workflow_calls_verbs_of_make():
    jobs = read_yaml(ROOT / ".github" / "workflows" / "ci.yaml")["jobs"]
    runs = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    assert runs
    runs = [run for run in runs if not run.startswith("apt-get ")]
    assert [run for run in runs if f"\n{run.removeprefix('make ')}:" not in MAKEFILE] == []


def test_experiments_leave_params_yaml_as_it_is():
    """`dvc exp run -S` changes it, and the next experiment would start from there."""

    def changing(page):
        calls = re.findall(r"dvc exp run [^\n#]*(?:-S [\w'+]|preset)[^\n#]*", code_of(page))
        return [call for call in calls if not re.search("--temp|--queue|dataset=mine", call)]

    assert violations(changing) == {}


STUBS = """
dvc() { [ "$1 $2" != "exp run" ] || printf '%s ' "${@:3}"; echo; }
for name in dask dayahead git make mlflow python source torchrun; do eval "$name() { :; }"; done
"""
"""What stands for the programs, to see their arguments as the shell makes them."""


@pytest.mark.slow
def test_experiments_have_valid_settings(tmp_path):
    """The values too, of commands that are not run; a list for --queue is none."""
    hydra = pytest.importorskip("dvc.utils.hydra")
    every = [block for page in PAGES for block in BLOCK.finditer(text_of(page))]
    texts = [block["text"] for block in every if block["mark"].startswith("not run")]
    script = STUBS + "".join(text for text in texts if "dvc exp run" in text)
    calls = run_script(script, tmp_path).splitlines()
    assert calls
    (tmp_path / "datasets").mkdir()
    for call in [call for call in calls if "--queue" not in call]:
        changes = {"params.yaml": []}
        for file, change in re.findall(r"-S (?:(\S+\.yaml):)?(\S+)", call):
            changes.setdefault(file or "params.yaml", []).append(change)
        for file, values in changes.items():
            shutil.copy(ROOT / file, tmp_path / file)
            hydra.apply_overrides(str(tmp_path / file), values)
            if file == "params.yaml":
                load_params(tmp_path / file)
            else:
                load_dataset(Path(file).stem, tmp_path / "datasets")


def run_script(script, folder, **environment):
    env = {**os.environ, "PYTHONPATH": str(folder / "src"), **environment}
    command = ["bash", "-e", "-c", script]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def test_fast_commands_run():
    script = "".join(blocks(page, "run") for page in PAGES)
    assert "make repro" in run_script(script, ROOT)


def test_the_first_trial_of_a_contributor_runs(tmp_path, monkeypatch, capsys):
    [code] = re.findall(
        r"^```python\n(.*?)^```$", text_of(ROOT / "docs/contributing.md"), re.M | re.S
    )
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    exec(code, {})  # noqa: S102 - the page's own example
    lines = capsys.readouterr().out.splitlines()
    assert next(line for line in lines if line.startswith("window,"))
    assert [line.split(",")[0] for line in lines if line.startswith("20")] == [
        day(i) for i in (1, 2, 3)
    ]


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """A clean clone with little data, ready to run: its environment is this one."""
    folder = tmp_path_factory.mktemp("docs") / "dayahead"
    clone_project(folder)
    for name, changes in TINY.items():
        text = text_of(folder / name)
        for old, new in changes.items():
            assert old in text
            text = text.replace(old, new)
        (folder / name).write_text(text, encoding="utf-8")
    run_script("git config user.name Me; git config user.email me@localhost", folder)
    run_script("git commit -qam 'Less data'; git tag start", folder)
    return folder


def test_a_clone_does_not_change_the_environment_that_it_borrows(tmp_path):
    clone_project(tmp_path / "dayahead")
    assert "install" not in run_script("make --dry-run .venv/.dev-ready", tmp_path / "dayahead")


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
