"""dvc.yaml tells the truth: what it names is what the stages use, no more and no less.

DVC follows no imports (treeverse/dvc#9195), so nothing else would notice a forgotten dependency.
"""

import ast
import shutil
import subprocess
import warnings
from pathlib import Path

import grimp
import pytest

from dayahead.config.loading import read_yaml
from dayahead.config.params import load_params
from pipeline.settings_read import SECTIONS, all_leaves, leaves_read, settled_leaves

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
PIPELINE = read_yaml(ROOT / "dvc.yaml")
STAGES = PIPELINE["stages"]
ORDER = ("download", "preprocess", "train", "aggregate")
OURS = "dayahead"
TRACKING = "dayahead.tracking"

each_stage = pytest.mark.parametrize("stage", ORDER)


@pytest.fixture(scope="module")
def graph():
    return grimp.build_graph(OURS, cache_dir=None)


def script(stage):
    return ROOT / "stages" / f"{stage}.py"


def file_of(module):
    path = SOURCE / Path(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def imported(file):
    """Our modules that a file imports itself."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        match node:
            case ast.Import(names=names):
                found = [name.name for name in names]
            case ast.ImportFrom(module=str(module), names=names):
                inner = [f"{module}.{name.name}" for name in names]
                found = [name for name in inner if file_of(name).is_file()] or [module]
            case _:
                continue
        yield from (name for name in found if name.split(".")[0] == OURS)


def modules_of(stage, graph):
    """Files of every module that runs in a stage, imported directly or not, doors included.

    An `__init__.py` that holds words only does nothing, and so is none of them. Nor is tracking:
    it is told of results and shapes none, so a change there repeats no training.
    """
    direct = {name for name in imported(script(stage)) if not name.startswith(TRACKING)}
    reached = direct.union(*(graph.find_upstream_modules(module) for module in direct))
    doors = {".".join(m.split(".")[:n]) for m in reached for n in range(1, m.count(".") + 1)}
    return {file for file in map(file_of, reached | doors) if not holds_words_only(file)}


def holds_words_only(file):
    body = ast.parse(file.read_text(encoding="utf-8")).body
    return file.name == "__init__.py" and {type(node) for node in body} <= {ast.Expr}


def data_files_of(modules):
    """Files that are no Python, beside a module that names them."""
    return {
        file
        for module in modules
        for file in module.parent.iterdir()
        if file.is_file() and file.suffix != ".py" and file.name in module.read_text()
    }


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
def test_deps_are_the_modules_that_run(stage, graph):
    modules = modules_of(stage, graph)
    needed = {str(p.relative_to(ROOT)) for p in modules | data_files_of(modules)}
    needed.add(f"stages/{stage}.py")
    assert {d for d in listed(stage, "deps") if within(d, ["src", "stages"])} == needed


@each_stage
def test_the_lock_is_a_dep_wherever_a_library_shapes_the_result(stage):
    assert ("requirements.txt" in listed(stage, "deps")) == (stage != "download")


@each_stage
def test_the_data_set_is_a_dep_where_it_is_read(stage):
    reads = "load_dataset" in script(stage).read_text(encoding="utf-8")
    assert ("datasets/${dataset}.yaml" in listed(stage, "deps")) == reads


def read_by(stage, graph):
    """Leaves a stage reads. What MLflow is told of them changes no output and does not count."""
    modules = {m for m in modules_of(stage, graph) if m.parent.name not in {"tracking", "config"}}
    return leaves_read([script(stage), *modules])


def told_by(stage):
    return set().union(*(all_leaves(key) for key in STAGES[stage].get("params", ())))


@each_stage
def test_params_are_the_leaves_that_are_read(stage, graph):
    read, told = read_by(stage, graph), told_by(stage)
    assert told - read <= settled_leaves()
    assert read - told <= all_leaves("tracking")


def test_every_setting_is_told_by_some_stage():
    every = set().union({"dataset"}, *map(all_leaves, SECTIONS))
    assert every - set().union(*map(told_by, ORDER)) <= all_leaves("tracking")


def test_no_setting_is_read_and_then_ignored():
    files = [*(ROOT / "stages").glob("*.py"), *(SOURCE / OURS).rglob("*.py")]
    for name in ("params.py", "training.py"):
        files.remove(SOURCE / OURS / "config" / name)
    every = set().union({"dataset"}, *map(all_leaves, SECTIONS)) - settled_leaves()
    assert every - leaves_read(files, one_by_one=True) == set()


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


class TestSettingsRead:
    def test_follows_arguments_fields_and_properties(self, tmp_path):
        source = tmp_path / "source.py"
        source.write_text(
            "class Plan:\n"
            "    window: WindowConfig\n"
            "    def __init__(self, model: ModelConfig):\n"
            "        self.model = model\n"
            "def f(plan: Plan, first: str):\n"
            "    window = plan.window\n"
            "    return plan.model.is_counted, window.unit, first.first\n"
            "def main():\n"
            "    params = load_params()\n"
            "    return params.dataset, params.task, params.loss.label_smoothing\n"
        )
        assert leaves_read([source]) == {
            "dataset",
            "loss.label_smoothing",
            "model.architecture",
            "window.unit",
        }

    def test_counts_a_whole_object_as_all_its_leaves(self, tmp_path):
        source = tmp_path / "source.py"
        source.write_text(
            "class Plan:\n    loss: LossConfig | None\n    outer: Plan\n"
            "def f(plan: Plan):\n    return asdict(plan)\n"
        )
        assert leaves_read([source]) == all_leaves("loss")
        source.write_text("def f():\n    return asdict(load_params())\n")
        assert {"dataset", *all_leaves("model")} < leaves_read([source])
