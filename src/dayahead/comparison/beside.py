"""The report of a run compared with other runs."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from dayahead.aggregate.findings import Folders, find
from dayahead.aggregate.page import render_page
from dayahead.config.baselines import baselines_beside
from dayahead.config.changed_settings import Setting
from dayahead.config.metric_names import packaged_metrics
from dayahead.core.errors import ComparisonError
from dayahead.outputs.run import RunResults
from dayahead.statistics.paired_tests import check_same_targets


def page_beside(
    folders: Folders,
    cutoffs: Sequence[int],
    settings: Mapping[str, Setting],
    runs: Mapping[str, Path],
) -> str:
    """Return the report of the run in `folders`, compared with others as with a baseline.

    Args:
        folders: folders of the run.
        cutoffs: lengths of the lists, as in evaluation.cutoffs.
        settings: those of the run, flat: {"model.n_layer": 2, ...}.
        runs: folders of other results, by their names on the page.

    Raises:
        ComparisonError: a run has the name of the model or of a counting baseline, or it differs in
            windows, sessions, positions or targets.
        DataError: results are missing, damaged, or they disagree.
    """
    _check_names(runs, str(settings["model.architecture"]))
    packaged = packaged_metrics(settings)
    own = RunResults.read(folders.results, cutoffs, packaged)
    beside = {name: RunResults.of_ranks(folder, cutoffs, packaged) for name, folder in runs.items()}
    for name, run in beside.items():
        check_same_targets(("results/", name), own.targets, run.targets)
    return render_page(find(folders, own, settings, beside))


def _check_names(names: Iterable[str], architecture: str) -> None:
    for name in names:
        if name in (architecture, *baselines_beside(architecture)):
            raise ComparisonError(
                f"{name}: the page has a row of this name already; name the run by its Git "
                f"revision, MLflow run id or results folder"
            )
