"""The runs of a study: which are missing, how many run at a time, and what happens to failures."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from dayahead.__main__ import app
from dayahead.config.loading import read_yaml
from dayahead.config.sections import flattened
from dayahead.core.errors import TuneError
from dayahead.studies import runs as module
from dayahead.studies.file import PlannedRun, planned_runs
from dayahead.studies.runs import Queue, commit_of
from support.git_projects import commit_all, git
from support.project_copy import ROOT, change_params
from support.results_folders import write_run
from support.user_packages import MODULE

METRIC = "ndcg_at_20"
STUDY = """description: x
seeds: [1, 2]
rows:
  Own: {settings: {model: {architecture: own}}}
  Memory: {seeds: [4, 5]}
"""


@pytest.fixture(autouse=True, scope="module")
def at_once():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "POLL_SECONDS", 0)
        yield


def plan(n_runs):
    known = {"evaluation.cutoffs": [10, 20]}
    return [PlannedRun(f"r{n}", 1, f"e{n}", {}, known) for n in range(n_runs)]


class Pretended:
    """An experiment that ends after some polls."""

    def __init__(self, n_polls, status, running):
        self.n_polls, self.status, self.running = n_polls, status, running
        running.add(self)

    def poll(self):
        self.n_polls -= 1
        if self.n_polls > 0:
            return None
        self.running.discard(self)
        return self.status

    def values(self, metric):
        assert metric == METRIC
        return [0.25, 0.5]

    def error(self):
        return "error: broken"

    def stop(self):
        self.running.discard(self)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 4), st.sampled_from([0, 0, 1, -9])), min_size=1, max_size=7),
    st.integers(1, 4),
)
def test_every_run_is_made_once_and_at_most_n_at_a_time(outcomes, n_jobs):
    running, started, most = set(), [], 0

    def start(slot, run):
        nonlocal most
        number = int(run.row[1:])
        started.append(number)
        experiment = Pretended(*outcomes[number], running)
        most = max(most, len(running))
        assert slot < n_jobs
        return experiment

    queue = Queue(plan(len(outcomes)), start, n_jobs)
    queue.run()
    assert started == [*range(len(outcomes))]
    assert most <= n_jobs
    assert queue.n_ended == len(outcomes)
    assert not running
    assert queue.failures == {
        f"r{n}, seed 1": "broken" for n, (_, status) in enumerate(outcomes) if status
    }


def test_an_interrupted_study_stops_what_runs():
    running, started = set(), []

    def start(slot, run):
        started.append(run.row)
        if len(started) == 3:
            raise KeyboardInterrupt
        return Pretended(1 if slot == 0 else 99, 0, running)

    with pytest.raises(KeyboardInterrupt):
        Queue(plan(4), start, 2).run()
    assert started == ["r0", "r1", "r2"]
    assert not running


@pytest.fixture
def project(tmp_path, monkeypatch):
    root = tmp_path / "project"
    (root / "studies").mkdir(parents=True)
    (root / ".dvc").mkdir()
    (root / "studies" / "mine.yaml").write_text(STUDY)
    (root / "params.yaml").write_text((ROOT / "params.yaml").read_text())
    (root / ".gitignore").write_text(".dayahead\n")
    commit_all(root)
    monkeypatch.chdir(root)
    monkeypatch.setenv("DVC_ROOT", str(root))
    return root


def record(root, run, **changed):
    """Record an experiment of a run, as DVC does; return its commit."""
    head, before = git(root, "rev-parse", "HEAD"), (root / "params.yaml").read_text()
    change_params(root, {"model": {"architecture": run.settings["model.architecture"]},
                         "loss": {"name": run.settings["loss.name"]},
                         "training": {"seed": run.seed}, **changed})  # fmt: skip
    git(root, "add", "params.yaml")
    tree = git(root, "write-tree")
    commit = git(root, "commit-tree", tree, "-p", head, "-m", "experiment")
    git(root, "update-ref", f"refs/exps/{head[:2]}/{head[2:]}/{run.experiment}", commit)
    (root / "params.yaml").write_text(before)
    git(root, "add", "params.yaml")
    return commit


def test_a_run_is_there_if_its_experiment_has_its_settings_and_the_last_commit(project):
    own, memory, *_ = planned_runs(project / "studies" / "mine.yaml", project)
    assert commit_of(own, project) is None
    commit = record(project, own)
    assert commit_of(own, project) == commit
    assert commit_of(memory, project) is None
    with_threads = record(project, own, compute={"threads": 7}, tracking={"log_model": False})
    assert commit_of(own, project) == with_threads
    record(project, own, window={"min_sessions": 77})
    assert commit_of(own, project) is None
    record(project, own)
    git(project, "commit", "--quiet", "--allow-empty", "-m", "second")
    assert commit_of(own, project) is None


@pytest.fixture
def clones(monkeypatch, tmp_path):
    """Clones whose experiments end at once; the table reads folders that the test has written."""
    started = []

    class Clone:
        def __init__(self, root, folder, lock):
            self.root, self.folder = root, folder

        def prepare(self, params):
            self.folder.mkdir(parents=True, exist_ok=True)
            assert flattened(read_yaml(params))["training.seed"] == 1

        def start(self, name, changed, logs):
            started.append(name)
            runs = planned_runs(self.root / "studies" / "mine.yaml", self.root)
            [run] = [run for run in runs if run.experiment == name]
            status = int(name == "mine-memory-5")
            if not status:
                commit = record(self.root, run)
                days = {f"2026-01-0{day}": [day, 2, run.seed] for day in range(1, 7)}
                write_run(self.root / commit, days, None)
            return Pretended(1, status, set())

    monkeypatch.setattr("dayahead.tune.experiment.Clone", Clone)
    return started


@pytest.mark.long
def test_the_command_makes_what_is_missing_and_ends_in_the_table(project, clones, caplog):
    runner = CliRunner()
    with caplog.at_level("INFO"):
        first = runner.invoke(app, ["study", "mine", "--metrics", METRIC])
    assert clones == ["mine-own-1", "mine-memory-4", "mine-own-2", "mine-memory-5"]
    lines = [record.getMessage() for record in caplog.records]
    output = ".dayahead/studies/mine/mine-"
    assert lines[0] == f"Own, seed 1: started; its output is in {output}own-1.log"
    assert lines[1].startswith(f"1/4 Own, seed 1: {METRIC} 0.3750, experiment mine-own-1 (")
    assert lines[-1].startswith("4/4 Memory, seed 5: failed: broken (")
    rows = [line.split("|")[1:3] for line in first.stdout.splitlines()[2:4]]
    assert [[cell.strip() for cell in row] for row in rows] == [["Own", "2"], ["Memory", "1"]]
    assert isinstance(first.exception, TuneError)
    assert "1 of 4 runs failed and are not in the table: Memory, seed 5" in str(first.exception)
    assert f"broken (output: {output}memory-5.log)" in str(first.exception)
    again = runner.invoke(app, ["study", "mine", "--metrics", METRIC, "--output", "t.md"])
    assert clones[4:] == ["mine-memory-5"]
    assert again.stdout == "t.md: 2 rows of 3 runs\n"
    assert (project / "t.md").read_text() == first.stdout
    assert not [*(project / ".dayahead" / "studies" / "mine").glob("clone-*")]


def interrupted(*_):
    raise KeyboardInterrupt


@pytest.mark.long
def test_runs_are_made_again_after_a_change_of_a_loss(project, clones, caplog, install):
    points = {"dayahead.losses": {"hinge": f"{MODULE}:hinge"}}
    source = install("def hinge(scores, config):\n    return 0\n", points)
    study = project / "studies" / "mine.yaml"
    study.write_text(STUDY.replace("architecture: own}", "architecture: gru}, loss: {name: hinge}"))
    commit_all(project)
    command = ["study", "mine", "--metrics", METRIC]
    CliRunner().invoke(app, command)
    assert clones == ["mine-own-1", "mine-memory-4", "mine-own-2", "mine-memory-5"]
    CliRunner().invoke(app, command)
    assert clones[4:] == ["mine-memory-5"]
    source.write_text("def hinge(scores, config):\n    return 1\n")
    with pytest.MonkeyPatch.context() as patch:  # an interrupted run leaves the earlier one
        patch.setattr("dayahead.tune.experiment.Clone.start", interrupted)
        CliRunner().invoke(app, command)
    with caplog.at_level("INFO"):
        CliRunner().invoke(app, command)
    assert clones[5:] == ["mine-own-1", "mine-own-2", "mine-memory-5"]
    assert "Own, seed 2: again, for the source of loss hinge changed" in caplog.messages


def test_a_run_whose_loss_changed_meanwhile_is_not_in_the_table(project, clones, monkeypatch):
    monkeypatch.setattr(module, "package_sources", lambda _: {"loss hinge": len(clones) // 3})
    found = CliRunner().invoke(app, ["study", "mine", "--metrics", METRIC])
    assert "Own, seed 1: the source of loss hinge changed while the" in str(found.exception)
    assert not [*(project / ".dayahead" / "studies" / "mine").glob("clone-*")]


def test_without_a_file_the_studies_are_listed(project):
    assert CliRunner().invoke(app, ["study"]).stdout == "mine\n"
