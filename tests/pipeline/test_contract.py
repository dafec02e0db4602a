"""dvc.yaml and the cache keys name exactly what the stages use.

DVC follows no imports (treeverse/dvc#9195), so nothing else would notice a missing dependency.
"""

import ast
import importlib
import shutil
import subprocess
import sys
import warnings
from dataclasses import fields
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import grimp
import pytest
from dvc.utils.serialize import load_yaml
from ruamel.yaml import YAML
from ruamel.yaml.parser import Parser

from dayahead.config.loading import read_yaml
from dayahead.config.params import Params, load_params

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "dayahead"
PRESETS = [f"presets/{path.name}" for path in sorted((ROOT / "presets").glob("*.yaml"))]
STAGES = read_yaml(ROOT / "dvc.yaml")["stages"]
ORDER = ("download", "preprocess", "train", "aggregate")
RECORDS_ONLY = {"tracking"}
"""Rooms that shape no result: a change there repeats no stage."""
NO_PARAMS = {
    **{stage: {"machine", "nightly"} for stage in ORDER},
    "train": {"machine", "nightly", "preprocess", "tracking"},
}
"""Sections that a stage reads or passes on, but that shape no result of it."""
SHAPES_NO_RESULT = {
    *("aiohttp", "filelock", "fsspec", "huggingface_hub", "jaxtyping", "omegaconf"),
    *("psutil", "pydantic", "pydantic_core", "ruamel", "s3fs", "tqdm", "typer"),
}
"""Packages of which another version gives the same bytes, or fails."""


@cache
def graph():
    return grimp.build_graph("dayahead", include_external_packages=True, cache_dir=None)


def upstream(modules):
    """Modules that some modules import, directly or not, and these themselves."""
    modules = set(modules)
    return modules.union(*(graph().find_upstream_modules(each) for each in modules))


def rooms_of(modules):
    return {name.split(".")[1] for name in modules if name.startswith("dayahead.")}


@cache
def script(stage):
    """Syntax tree of a stage's script."""
    return ast.parse((ROOT / "stages" / f"{stage}.py").read_text(encoding="utf-8"))


def imported(stage):
    """Modules of ours that a stage's script imports."""
    for node in ast.walk(script(stage)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("dayahead"):
            yield node.module


def rooms_in(stage):
    """Rooms whose code runs in a stage and shapes its result."""
    direct = {name for name in imported(stage) if rooms_of({name}).isdisjoint(RECORDS_ONLY)}
    return rooms_of(upstream(direct))


def listed(stage, *keys):
    """Paths under `deps`, `outs` and the like, without their settings."""
    entries = [entry for key in keys for entry in STAGES[stage].get(key, ())]
    return {next(iter(entry)) if isinstance(entry, dict) else entry for entry in entries}


def deps_of(stage):
    return listed(stage, "deps")


def outs_of(stage):
    return listed(stage, "outs", "metrics", "plots")


def within(path, folders):
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)


def each_stage(rule):
    """What a rule says of each stage."""
    return {stage: rule(stage) for stage in ORDER}


@pytest.mark.parametrize("name", ["dvc.yaml", "params.yaml", *PRESETS])
def test_dvc_whose_parser_is_in_c_reads_a_file_as_we_do(name):
    assert YAML(typ="safe").Parser is not Parser
    assert load_yaml(ROOT / name) == read_yaml(ROOT / name)


def test_there_are_four_stages_in_order():
    assert tuple(STAGES) == ORDER


def test_a_stage_runs_the_source_beside_its_script():
    """A `--temp` or `--queue` copy must not run the main tree, to which the install points."""
    commands = each_stage(lambda stage: STAGES[stage]["cmd"])
    assert commands == each_stage(lambda stage: f"PYTHONPATH=src python stages/{stage}.py")


def test_deps_are_the_rooms_whose_code_runs():
    def needed(stage):
        return {f"src/dayahead/{room}" for room in rooms_in(stage)} | {f"stages/{stage}.py"}

    def named(stage):
        return {dep for dep in deps_of(stage) if within(dep, ["src", "stages"])}

    assert each_stage(named) == each_stage(needed)


def test_the_lock_is_a_dep_wherever_a_library_shapes_the_result():
    named = each_stage(lambda stage: "requirements.txt" in deps_of(stage))
    assert named == each_stage(lambda stage: stage != "download")


def test_the_data_set_is_a_dep_where_it_is_read():
    named = each_stage(lambda stage: "datasets/${dataset}.yaml" in deps_of(stage))
    assert named == each_stage(lambda stage: "load_dataset" in ast.unparse(script(stage)))


def modules_with_keys():
    """Modules that make cache keys: those with a constant ROOMS."""
    for file in sorted(PACKAGE.rglob("*.py")):
        if "\nROOMS = " in file.read_text(encoding="utf-8"):
            yield importlib.import_module(f"dayahead.{file.parent.name}.{file.stem}")


@pytest.mark.long
def test_keys_name_every_room_and_package_that_results_depend_on():
    importable = packages_distributions()
    makers = list(modules_with_keys())
    assert makers
    for module in makers:
        room = module.__name__.rsplit(".", 1)[0]
        reached = upstream(name for name in graph().modules if name.startswith(f"{room}."))
        assert rooms_of(reached) == set(module.ROOMS), module
        outside = {name for name in reached if not name.startswith("dayahead")}
        shaping = outside - sys.stdlib_module_names - SHAPES_NO_RESULT
        unnamed = {name for name in shaping if not {*importable[name]} & {*module.PACKAGES}}
        assert unnamed == set(), module


def sections_read(stage):
    """Sections of params.yaml that a script reads; all of them if it passes them on."""
    uses = [
        node
        for node in ast.walk(script(stage))
        if isinstance(node, ast.Attribute | ast.keyword)
        and isinstance(node.value, ast.Name)
        and node.value.id == "params"
    ]
    passes_all = any(isinstance(node, ast.keyword) for node in uses)
    if passes_all or "flat_settings(" in ast.unparse(script(stage)):
        return {section.name for section in fields(Params)}
    return {node.attr for node in uses}


def test_params_are_the_sections_that_are_read():
    def needed(stage):
        return sections_read(stage) - NO_PARAMS[stage]

    def named(stage):
        return {name.split(".")[0] for name in STAGES[stage].get("params", ())}

    assert each_stage(named) == each_stage(needed)


def test_a_change_of_trackers_trains_nothing_again():
    assert [stage for stage in ORDER if "tracking" in listed(stage, "params")] == ["aggregate"]


def test_every_setting_of_a_window_belongs_to_preprocess_or_train():
    named = [name for stage in ("preprocess", "train") for name in STAGES[stage]["params"]]
    window = [name.removeprefix("window.") for name in named if name.startswith("window.")]
    section = next(each.type for each in fields(Params) if each.name == "window")
    assert sorted(window) == sorted(each.name for each in fields(section))


def paths_in(stage):
    for node in ast.walk(script(stage)):
        match node:
            case ast.Call(func=ast.Name(id="Path"), args=[ast.Constant(value=path)]):
                yield path


def test_paths_in_a_script_are_deps_or_outs():
    def unnamed(stage):
        named = deps_of(stage) | outs_of(stage)
        around = {str(folder) for path in named for folder in Path(path).parents}
        paths = {path for path in paths_in(stage) if path.split("/")[0] != "src"}
        return {path for path in paths if not within(path, named) and path not in around}

    assert each_stage(unnamed) == each_stage(lambda _: set())


def test_a_stage_reads_what_earlier_ones_write():
    for stage in ORDER:
        earlier = set().union(*(outs_of(s) for s in ORDER[: ORDER.index(stage)]))
        inputs = {dep for dep in deps_of(stage) if within(dep, ["data", "models", "results"])}
        assert {path for path in inputs if not within(path, earlier)} == set()
        assert bool(inputs) == (stage != "download")


def test_clock_times_are_no_input():
    assert not any("timing" in dep for stage in ORDER for dep in deps_of(stage))


def git(*arguments):
    command = ["git", "-C", str(ROOT), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return set(done.stdout.splitlines())


def test_outs_are_ignored_by_git_and_none_is_tracked():
    """DVC says 'already tracked by SCM' only after the stage has run for hours."""
    outs = set().union(*each_stage(outs_of).values())
    assert git("check-ignore", "--no-index", *outs) == outs
    assert git("ls-files", "--", *outs) == set()


def test_an_experiment_changes_one_line_of_the_settings(tmp_path):
    """`dvc exp run -S` rewrites params.yaml in DVC's style: ours has that style already."""
    hydra = pytest.importorskip("dvc.utils.hydra")
    copy = tmp_path / "params.yaml"
    shutil.copy(ROOT / "params.yaml", copy)
    before = copy.read_text(encoding="utf-8").splitlines()
    layers = load_params(copy).model.n_layer
    hydra.apply_overrides(str(copy), [f"model.n_layer={layers + 1}"])
    after = copy.read_text(encoding="utf-8").splitlines()
    changed = [new for old, new in zip(before, after, strict=True) if old != new]
    assert changed == [f"  n_layer: {layers + 1}"]


@pytest.mark.long
def test_dvc_reads_the_pipeline():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from dvc.repo import Repo

        index = Repo(str(ROOT)).index
        assert {stage.name for stage in index.stages} == set(ORDER)
        index.check_graph()
