"""The runs of a study: DVC experiments in clones of the project, those that are missing."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dayahead.comparison.rows import WITHOUT_EFFECT
from dayahead.config.loading import parse_yaml
from dayahead.config.sections import flattened, without_sections
from dayahead.core.files import read_json, write_json
from dayahead.metrics.metrics import main_metric, mean, metric_names
from dayahead.studies.file import PlannedRun, planned_runs, study_path
from dayahead.tune.experiment import (
    RunningExperiment,
    locked,
    package_sources,
    prepared_clones,
    run_git,
    warn_of_uncommitted,
)

HOME = Path(".dayahead") / "studies"
POLL_SECONDS = 1.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class StudyResult:
    """What became of the runs of a study."""

    rows: dict[str, list[str]]
    """Commits of the experiments by row; rows without any are left out."""
    failures: dict[str, str]
    """Why runs failed, by run."""
    n_runs: int


def run_study(name: str, root: Path, n_jobs: int = 1) -> StudyResult:
    """Make the runs of a study that are missing.

    A run is there if the project has an experiment of its name on the last commit, with its
    settings and the source of what it uses of other packages. One that fails does not stop the
    others.

    Args:
        name: of a file in studies/, or its path.
        root: the project.
        n_jobs: runs at a time.

    Raises:
        ConfigError: the study breaks a rule.
        BusyError: another process works on it.
        TuneError: the project is no Git repository with a commit.
    """
    path = study_path(name, root / "studies")
    runs = planned_runs(path, root)
    home = root / HOME / path.stem
    with locked(home.with_suffix(".lock"), f"the study {path.stem}; wait for it") as lock:
        warn_of_uncommitted(root, ("params.yaml", "studies/", "presets/", "dvc.lock"))
        there = [run for run in runs if commit_of(run, root) is not None]
        changed = [run for run in there if _changed_sources(run, root, home)]
        missing = [run for run in runs if run not in there or run in changed]
        if len(missing) < len(runs):
            _log.info("%d of %d runs are there already", len(runs) - len(missing), len(runs))
        for run in changed:
            _log.info("%s: again, for %s changed", run, _changed_sources(run, root, home))
        failures = _made(missing, root, home, lock, n_jobs) if missing else {}
    rows: dict[str, list[str]] = {run.row: [] for run in runs}
    for run in runs:
        if str(run) not in failures and (commit := commit_of(run, root)) is not None:
            if names := _changed_sources(run, root, home):
                failures[str(run)] = f"{names} changed while the study ran"
            else:
                rows[run.row].append(commit)
    return StudyResult({row: found for row, found in rows.items() if found}, failures, len(runs))


def _made(
    runs: Sequence[PlannedRun], root: Path, home: Path, lock: int, n_jobs: int
) -> dict[str, str]:
    """Make runs in clones; return why some failed."""
    n_clones, params = min(n_jobs, len(runs)), root / "params.yaml"
    with prepared_clones(root, home, lock, n_clones, params) as clones:

        def start(slot: int, run: PlannedRun) -> RunningExperiment:
            _log.info("%s: started; its output is in %s", run, _output_of(run, home, root))
            record = {"instead_of": commit_of(run, root), "sources": package_sources(run.settings)}
            write_json(_sources_file(run, home), record)
            return clones[slot].start(run.experiment, run.changed, home)

        queue = Queue(list(runs), start, n_jobs)
        queue.run()
    named = {str(run): _output_of(run, home, root) for run in runs}
    return {run: f"{error} (output: {named[run]})" for run, error in queue.failures.items()}


def _output_of(run: PlannedRun, home: Path, root: Path) -> Path:
    return (home / f"{run.experiment}.log").relative_to(root)


def _sources_file(run: PlannedRun, home: Path) -> Path:
    return home / f"{run.experiment}.sources.json"


def _changed_sources(run: PlannedRun, root: Path, home: Path) -> str:
    """Name what a run uses of other packages whose source is another than when it started."""
    file = _sources_file(run, home)
    record = read_json(file) if file.exists() else {}
    # An interrupted run has left the experiment that it was to replace.
    is_of_it = bool(record) and record["instead_of"] != commit_of(run, root)
    before = record["sources"] if is_of_it else {}
    now = package_sources(run.settings)
    return " and ".join(f"the source of {name}" for name in now if before.get(name) != now[name])


def commit_of(run: PlannedRun, root: Path) -> str | None:
    """Return the commit of a run's experiment on the last commit of the project, if it is there."""
    head = run_git(root, "rev-parse", "HEAD").strip()
    ref = f"refs/exps/{head[:2]}/{head[2:]}/{run.experiment}"
    commit = run_git(root, "for-each-ref", "--format=%(objectname)", ref).strip()
    if not commit:
        return None
    file = f"{commit}:params.yaml"
    settings = flattened(parse_yaml(run_git(root, "show", file), file))
    found = without_sections(settings, WITHOUT_EFFECT)
    is_same = found == without_sections(run.settings, WITHOUT_EFFECT)
    return commit if is_same else None


@dataclass
class Queue:
    """Runs that wait, and those that run, up to `n_jobs` at a time."""

    waiting: list[PlannedRun]
    start: Callable[[int, PlannedRun], RunningExperiment]
    """Starts a run in a slot."""
    n_jobs: int = 1
    failures: dict[str, str] = field(default_factory=dict)
    n_ended: int = 0

    def run(self) -> None:
        """Run all; at an error or Ctrl-C stop those that run, whose finished fits are cached."""
        n_runs = len(self.waiting)
        running: dict[int, tuple[PlannedRun, RunningExperiment, float]] = {}
        try:
            while self.waiting or running:
                for slot in sorted({*range(self.n_jobs)} - running.keys()):
                    if self.waiting:
                        run = self.waiting.pop(0)
                        running[slot] = run, self.start(slot, run), time.monotonic()
                time.sleep(POLL_SECONDS)
                for slot, (run, experiment, started) in [*running.items()]:
                    if (status := experiment.poll()) is not None:
                        del running[slot]
                        self.n_ended += 1
                        seconds = time.monotonic() - started
                        line = self._ended(run, experiment, status)
                        _log.info("%d/%d %s: %s (%.0f s)", self.n_ended, n_runs, run, line, seconds)
        finally:
            for _, experiment, _ in running.values():
                experiment.stop()

    def _ended(self, run: PlannedRun, experiment: RunningExperiment, status: int) -> str:
        """Return what became of a run."""
        metric = main_metric(metric_names(run.settings["evaluation.cutoffs"]))
        values = [] if status else experiment.values(metric)
        if values:
            return f"{metric} {mean(values):.4f}, experiment {run.experiment}"
        self.failures[str(run)] = experiment.error().removeprefix("error: ")
        return f"failed: {self.failures[str(run)]}"
