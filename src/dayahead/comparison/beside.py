"""The report of a run with other runs beside it."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from dayahead.aggregate.changed_settings import Setting
from dayahead.aggregate.findings import Folders, find
from dayahead.aggregate.page import render_page
from dayahead.aggregate.run_results import RunResults
from dayahead.comparison.paired_tests import compare


def page_beside(
    folders: Folders,
    cutoffs: Sequence[int],
    settings: Mapping[str, Setting],
    runs: Mapping[str, Path],
) -> str:
    """Return the report of the run in `folders`, compared with others as with a baseline.

    Args:
        folders: of the run.
        cutoffs: lengths of the lists, as in evaluation.cutoffs.
        settings: those of the run, flat: {"model.n_layer": 2, ...}.
        runs: folders of other results, by the name that the page has for them.

    Raises:
        ComparisonError: a run differs in windows, sessions, positions or targets.
        DataError: results are missing, damaged, or they disagree.
    """
    for folder in runs.values():
        compare([folders.results], [folder], cutoffs)  # which checks that the targets are the same
    own = RunResults.read(folders.results, cutoffs)
    beside = {name: RunResults.of_ranks(folder, cutoffs) for name, folder in runs.items()}
    return render_page(find(folders, own, cutoffs, settings, beside))
