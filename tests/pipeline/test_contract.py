"""dvc.yaml and the cache keys tell the truth: what they name is what the stages use.

DVC follows no imports (treeverse/dvc#9195), so nothing else would notice a forgotten dependency.
"""

import ast
import shutil
import subprocess
import sys
import warnings
from dataclasses import fields
from functools import cache
from pathlib import Path

import grimp
import pytest

from dayahead.config.loading import read_yaml
from dayahead.config.params import Params, load_params
from dayahead.train import cached_windows

ROOT = Path(__file__).parents[2]
PIPELINE = read_yaml(ROOT / "dvc.yaml")
STAGES = PIPELINE["stages"]
ORDER = ("download", "preprocess", "train", "aggregate")
OURS = "dayahead"
NO_DEP = {"tracking"}
"""Rooms that hear of results and shape none: a change there repeats no stage."""
KEYS = {"train": (cached_windows.ROOMS, cached_windows.PACKAGES)}
"""By room: the rooms and packages in the keys of what it caches."""
SHAPE_NO_RESULT = {
    *(
        "filelock",
        "huggingface_hub",
        "jaxtyping",
        "psutil",
        "pydantic",
        "pydantic_core",
        "ruamel",
        "tqdm",
        "typer",
    ),
}
"""Packages whose other versions give the same bytes, or fail."""

each_stage = pytest.mark.parametrize("stage", ORDER)


@cache
def graph():
    return grimp.build_graph(OURS, include_external_packages=True, cache_dir=None)


def script(stage):
    return ROOT / "stages" / f"{stage}.py"


def imported(file):
    """Modules of ours that a script imports."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(OURS):
            yield node.module


def upstream(modules):
    """What some modules import, directly or not, themselves included."""
    return set(modules).union(*(graph().find_upstream_modules(each) for each in modules))


def rooms_of(modules):
    return {name.split(".")[1] for name in modules if name.startswith(f"{OURS}.")}


def rooms_in(stage):
    direct = {name for name in imported(script(stage)) if rooms_of({name}).isdisjoint(NO_DEP)}
    return rooms_of(upstream(direct))


def listed(stage, key):
    """The paths under `deps` or `outs` and the like, without their settings."""
    return {
        next(iter(entry)) if isinstance(entry, dict) else entry
        for entry in STAGES[stage].get(key, ())
    }


def outs_of(stage):
    return listed(stage, "outs") | listed(stage, "metrics") | listed(stage, "plots")


def within(path, folders):
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)


def test_the_four_stages_stand_in_order():
    assert tuple(STAGES) == ORDER


@each_stage
def test_deps_are_the_rooms_whose_code_runs(stage):
    needed = {f"src/{OURS}/{room}" for room in rooms_in(stage)} | {f"stages/{stage}.py"}
    assert {dep for dep in listed(stage, "deps") if within(dep, ["src", "stages"])} == needed


@pytest.mark.parametrize("room", KEYS)
def test_keys_name_every_room_and_package_that_results_depend_on(room):
    rooms, packages = KEYS[room]
    modules = {name for name in graph().modules if name.startswith(f"{OURS}.{room}")}
    reached = upstream(modules)
    assert rooms_of(reached) == set(rooms)
    outside = {name for name in reached if not name.startswith(OURS)}
    known = {name.replace("-", "_").split("[")[0] for name in packages}
    theirs = {"merlin_core": "merlin", "merlin_dataloader": "merlin", "nvtabular": "nvtabular"}
    known |= {theirs[name] for name in known & theirs.keys()}
    assert external(outside) - known <= SHAPE_NO_RESULT


def external(names):
    """Packages that are not Python's own."""
    return {name for name in names if name not in sys.stdlib_module_names}


@each_stage
def test_the_lock_is_a_dep_wherever_a_library_shapes_the_result(stage):
    assert ("requirements.txt" in listed(stage, "deps")) == (stage != "download")


@each_stage
def test_the_data_set_is_a_dep_where_it_is_read(stage):
    reads = "load_dataset" in script(stage).read_text(encoding="utf-8")
    assert ("datasets/${dataset}.yaml" in listed(stage, "deps")) == reads


SPARED = {"train": {"preprocess"}}
"""Sections that are passed on and not read."""


def sections_read(stage):
    """Sections that a script takes from params.yaml; all of them where it passes them on."""
    every = {each.name for each in fields(Params)}
    tree = ast.parse(script(stage).read_text(encoding="utf-8"))
    uses = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute | ast.keyword)
        and isinstance(node.value, ast.Name)
        and node.value.id == "params"
    ]
    if any(isinstance(node, ast.keyword) for node in uses) or "flat_settings(" in ast.unparse(tree):
        return every
    return {node.attr for node in uses}


@each_stage
def test_params_are_the_sections_that_are_read(stage):
    """But for the machine, which shapes no result, and for what is only tracked."""
    named = {name.split(".")[0] for name in STAGES[stage].get("params", ())}
    assert sections_read(stage) - {"machine", "tracking"} - named == SPARED.get(stage, set())
    assert named <= sections_read(stage)


def test_every_setting_of_a_window_concerns_preprocess_or_train():
    named = [name for stage in ("preprocess", "train") for name in STAGES[stage]["params"]]
    window = [name.removeprefix("window.") for name in named if name.startswith("window.")]
    section = next(each.type for each in fields(Params) if each.name == "window")
    assert sorted(window) == sorted(each.name for each in fields(section))


def paths_in(file):
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        match node:
            case ast.Call(func=ast.Name(id="Path"), args=[ast.Constant(value=path)]):
                yield path


@each_stage
def test_paths_in_a_script_are_deps_or_outs(stage):
    named = listed(stage, "deps") | outs_of(stage)
    around = {str(folder) for path in named for folder in Path(path).parents}
    paths = {path for path in paths_in(script(stage)) if path.split("/")[0] != "stages"}
    assert {path for path in paths if not within(path, named) and path not in around} == set()


@each_stage
def test_a_stage_reads_what_an_earlier_one_writes(stage):
    earlier = set().union(*(outs_of(s) for s in ORDER[: ORDER.index(stage)]))
    inputs = {d for d in listed(stage, "deps") if within(d, ["data", "models", "results"])}
    assert {path for path in inputs if not within(path, earlier)} == set()
    assert bool(inputs) == (stage != "download")


def test_clock_times_are_nobodys_input():
    assert not any("timing" in dep for stage in ORDER for dep in listed(stage, "deps"))


@each_stage
def test_a_stage_runs_the_source_it_stands_beside(stage):
    """A `--temp` or `--queue` copy must not run the main tree, where the install points."""
    assert STAGES[stage]["cmd"] == f"PYTHONPATH=src python stages/{stage}.py"


def git(*arguments):
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.split("\n")


@each_stage
def test_outs_are_ignored_by_git_and_none_is_tracked(stage):
    """DVC says 'already tracked by SCM' only after the stage has run for hours."""
    outs = sorted(outs_of(stage))
    assert set(git("check-ignore", "--no-index", *outs)) - {""} == set(outs)
    assert git("ls-files", "--", *outs) == [""]


def test_an_experiment_changes_one_line_of_the_settings(tmp_path):
    """`dvc exp run -S` rewrites params.yaml in DVC's style: ours is that style already."""
    hydra = pytest.importorskip("dvc.utils.hydra")
    copy = tmp_path / "params.yaml"
    shutil.copy(ROOT / "params.yaml", copy)
    before = copy.read_text(encoding="utf-8").splitlines()
    layers = load_params(copy).model.n_layer
    hydra.apply_overrides(str(copy), [f"model.n_layer={layers + 1}"])
    after = copy.read_text(encoding="utf-8").splitlines()
    changed = [new for old, new in zip(before, after, strict=True) if old != new]
    assert changed == [f"  n_layer: {layers + 1}"]


def test_dvc_reads_the_pipeline():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from dvc.repo import Repo

        index = Repo(str(ROOT)).index
        assert {stage.name for stage in index.stages} == set(ORDER)
        index.check_graph()
