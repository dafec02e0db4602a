"""Train a next-item recommender on each day's sessions and evaluate it on the next day's.

The public API is `load_model`, `evaluate` and `compare`; everything else may change. Importing them
is fast: what they need is imported when they are called.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from dayahead.serve.recommender import Recommender
    from dayahead.statistics.paired_tests import Comparison

__all__ = ["compare", "evaluate", "load_model"]


def load_model(folder: str | Path = "models") -> "Recommender":
    """Load a saved model, for recommendations after a session of raw item ids.

    Args:
        folder: as `dvc repro` writes it, models/.

    Raises:
        ModelFileError: a part of the folder is missing or damaged.

    Examples:
        >>> model = load_model("models")
        >>> [item for item, score in model.recommend([11, 12], top_k=2)]
        [12, 11]
    """
    from dayahead.serve.recommender import Recommender

    return Recommender.load(folder)


def evaluate(
    model: "Recommender | str | Path",
    windows: str | Path = "data/windows",
    window: str | None = None,
    *,
    split: Literal["valid", "test", "all"] = "test",
    cutoffs: Sequence[int] = (10, 20),
    metrics: Sequence[str] = (),
) -> dict[str, float]:
    """Evaluate a saved model on a window after the last one that it was fitted on.

    Args:
        model: a loaded model, or its folder.
        windows: folder that the stage preprocess wrote.
        window: its name, such as 2026-01-15; by default the window that follows the model's last.
        split: sessions to evaluate on; their last items are the targets.
        cutoffs: lengths of the lists.
        metrics: of other packages, by the names of their entry points.

    Returns:
        Recall, NDCG, MRR and these metrics at each cutoff, by name, as in results/windows.csv.

    Raises:
        ConfigError: there is no such window, or the model was fitted on it or after it; a metric
            is unknown or fails.
        ModelFileError: the model is damaged, or belongs to another folder of windows.
        DataError: the window has no session to evaluate on, or a file is damaged.

    Examples:
        >>> metrics = evaluate("models", "data/windows", cutoffs=[1])
        >>> sorted(metrics)
        ['mrr_at_1', 'ndcg_at_1', 'recall_at_1']
        >>> metrics["recall_at_1"]
        0.5
    """
    from dayahead.train.saved_model import evaluate_saved

    loaded = load_model(model) if isinstance(model, str | Path) else model
    return evaluate_saved(loaded.stored, Path(windows), window, split, cutoffs, metrics).metrics


def compare(
    runs_a: str | Path | Sequence[str | Path],
    runs_b: str | Path | Sequence[str | Path],
    cutoffs: Sequence[int] = (10, 20),
    metrics: Sequence[str] = (),
) -> "Comparison":
    """Test which of two settings is better; windows are the unit, runs differ in their seeds.

    Args:
        runs_a: a run of one setting, or a list of its runs: DVC experiments, Git revisions, MLflow
            run ids or results folders.
        runs_b: the same of the other setting.
        cutoffs: lengths of the lists.
        metrics: of other packages, by the names of their entry points; those that the runs
            recorded are added.

    Raises:
        ComparisonError: a run has no results, or the runs differ in windows, sessions or targets.
        DataError: a file is damaged.

    Examples:
        >>> found = compare("results-a", "results-b", cutoffs=[1])
        >>> found.n_windows, found.n_sessions
        (6, 12)
        >>> [(metric.name, metric.a, metric.b) for metric in found.metrics]
        [('recall_at_1', 0.0, 0.5), ('ndcg_at_1', 0.0, 0.5), ('mrr_at_1', 0.0, 0.5)]
    """
    from dayahead.comparison.runs import compare_runs

    a, b = ([runs] if isinstance(runs, str | Path) else runs for runs in (runs_a, runs_b))
    return compare_runs(a, b, cutoffs, metrics)
