"""A comparison of runs by name: folders, MLflow runs, DVC experiments or Git revisions."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from dayahead.config.metric_names import installed_metrics
from dayahead.core.errors import ComparisonError
from dayahead.statistics.paired_tests import Comparison, compare
from dayahead.tracking.run_lookup import FoundRun, run_of


def compare_runs(
    runs_a: Sequence[str | Path],
    runs_b: Sequence[str | Path],
    cutoffs: Sequence[int],
    packaged: Sequence[str] = (),
) -> Comparison:
    """Compare two settings by their runs.

    Args:
        runs_a: DVC experiments, Git revisions, MLflow run ids or results folders of one setting.
        runs_b: the same of the other.
        cutoffs: lengths of the lists, as in evaluation.cutoffs.
        packaged: metrics of other packages, as in evaluation.metrics; those that the runs
            recorded are added.

    Raises:
        ComparisonError: a run has no results, is named twice, or the runs differ in windows,
            sessions or targets.
        DataError: a file is damaged.
    """
    with tempfile.TemporaryDirectory() as scratch:
        a = _found(runs_a, Path(scratch) / "a")
        b = _found(runs_b, Path(scratch) / "b")
        recorded = installed_metrics(run.settings for run in (*a.values(), *b.values()))
        return compare(
            [run.folder for run in a.values()],
            [run.folder for run in b.values()],
            cutoffs,
            packaged=[*dict.fromkeys([*packaged, *recorded])],
        )


def _found(runs: Sequence[str | Path], into: Path) -> dict[str, FoundRun]:
    names = [str(run).strip() for run in runs]
    check_run_names(names)
    return {name: run_of(name, into / str(number)) for number, name in enumerate(names)}


def check_run_names(names: Sequence[str]) -> None:
    """Check that runs are named, each once.

    Raises:
        ComparisonError: they are not.
    """
    if not names or "" in names or len(set(names)) < len(names):
        raise ComparisonError(
            f"{','.join(names)!r}: expected different runs, separated by commas, such as "
            f"HEAD,my-exp"
        )
