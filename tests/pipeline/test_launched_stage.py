"""The stage `train` as a launcher starts it: one process records and writes, the others help."""

import shutil
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from support.launched_study import errors_in, ranks
from support.window_folders import bytes_in, markov_days, write_window_folder

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
COPIED = ("src", "stages", "dvc.yaml", "params.yaml", "requirements.txt", ".gitignore")
SETTINGS = {
    "dataset": {},
    "model": {"d_model": 16, "n_layer": 1, "n_head": 2},
    "training": {"epochs": 1, "batch_size": 16, "precision": "float32"},
    "compute": {"processes": "auto", "threads": 1, "device": "cpu"},
    "tracking": {"log_model": False},
}
ENVIRON = {"PYTHONPATH": "src", "MASTER_ADDR": "localhost", "DVC_NO_ANALYTICS": "1"}


@pytest.fixture
def project(tmp_path):
    """A project with its windows, nothing trained."""
    for name in COPIED:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copyfile
        copy(ROOT / name, tmp_path / name)
    (tmp_path / ".dvc").mkdir()
    shutil.copyfile(ROOT / ".dvc" / "config", tmp_path / ".dvc" / "config")
    write_window_folder(tmp_path / "data" / "windows", markov_days(4, 61, n_items=30))
    yaml = YAML()
    params = yaml.load(tmp_path / "params.yaml")
    for section, values in SETTINGS.items():
        if values:
            params[section].update(values)
    yaml.dump(params, tmp_path / "params.yaml")
    with ranks() as started:
        for command in ("init -q", "add .", "-c user.name=n -c user.email=n commit -qm all"):
            started.start(["git", *command.split()], tmp_path)
            started.said()
    assert started.statuses == [0, 0, 0]
    return tmp_path


def stage(project, **environ):
    """Run the stage by itself, or as what the variables say; what each process said."""
    places = environ.pop("places", [{}])
    with ranks() as started:
        for place in places:
            started.start(["python", "stages/train.py"], project, **ENVIRON, **environ, **place)
        said = started.said()
    return started.statuses, said


def left_in(project):
    """All that counts of a finished run."""
    files = bytes_in(project / "results") | bytes_in(project / "models")
    files.pop("timing.csv")
    return files


def journals(project):
    return sorted(project.glob(".dayahead/journal/*/train.jsonl"))


def forget(project):
    for name in ("results", "models", ".dayahead"):
        shutil.rmtree(project / name)


def test_one_process_of_a_launcher_records_and_writes(project, free_port):
    places = [{"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_PORT": free_port} for rank in (0, 1)]
    statuses, said = stage(project, places=places)
    assert statuses == [0, 0], said
    assert len(journals(project)) == 1
    whole = left_in(project)
    forget(project)
    launch = f"torchrun --nproc-per-node=2 --master-port={free_port}"
    statuses, said = stage(project, DAYAHEAD_LAUNCH=launch)
    assert statuses == [0], said
    assert left_in(project) == whole
    assert len(journals(project)) == 1


def test_dvc_runs_the_stage_through_a_launcher(project, free_port):
    launch = f"torchrun --nproc-per-node=2 --master-port={free_port}"
    site = str(project / ".dvc" / "site")
    environ = ENVIRON | {"DAYAHEAD_LAUNCH": launch, "DVC_SITE_CACHE_DIR": site}
    with ranks() as started:
        started.start(["dvc", "repro", "--single-item", "train"], project, **environ)
        said = started.said()
    assert started.statuses == [0], said
    [journal] = journals(project)
    assert journal.parent.name.startswith("dvc-")
    assert "results/windows.csv" in (project / "dvc.lock").read_text()


def test_a_launcher_that_is_not_there_is_named(project):
    statuses, [said] = stage(project, DAYAHEAD_LAUNCH="no-such-launcher -n 2")
    assert statuses == [1]
    assert errors_in(said) == [
        "error: DAYAHEAD_LAUNCH: there is no program no-such-launcher here; name one, or unset "
        "DAYAHEAD_LAUNCH"
    ]
