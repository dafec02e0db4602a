"""The counting baselines that a run is compared with: same protocol, same windows."""

import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from dayahead.config.baselines import baselines_beside
from dayahead.core.phases import in_phase
from dayahead.distributed.launch import main_process
from dayahead.metrics.metrics import main_metric
from dayahead.outputs.ranks_by_window import write_baseline_ranks
from dayahead.outputs.tables import (
    baseline_path,
    mean_metrics,
    read_ranks,
    read_windows,
    write_windows,
)
from dayahead.train.results import WINDOWS
from dayahead.train.stage import run_protocol
from dayahead.train.study import Study

_log = logging.getLogger(__name__)


@in_phase("baselines")
def train_baselines(study: Study) -> dict[str, float]:
    """Evaluate the counting baselines on the windows of a run, and write two tables for each.

    They run in this process alone, on the CPU, and are cached as any run is.

    Returns:
        Their averages over windows: {"popularity_aod_ndcg_at_20": 0.07, ...}.
    """
    found: dict[str, float] = {}
    for architecture in baselines_beside(study.params.model.architecture):
        with tempfile.TemporaryDirectory(prefix="dayahead-") as scratch, _only_warnings():
            baseline = baseline_study(architecture, study, Path(scratch))
            run_protocol(main_process(baseline.params.compute, 1), baseline)
            config = study.params.evaluation
            rows = read_windows(baseline.results / WINDOWS, config.cutoffs, config.metrics)
            ranks = {row.window: read_ranks(baseline.results, row.window).ranks for row in rows}
        write_baseline_ranks(study.results, architecture, ranks)
        write_windows(baseline_path(study.results, architecture), rows)
        aod = mean_metrics(rows)
        main = main_metric(aod)
        figures = " ".join(f"{m} {aod[m]:.4f}" for m in (main, main.replace("ndcg", "recall")))
        _log.info(f"baseline {architecture}, over the same {len(rows)} windows: {figures}")
        found |= {f"{architecture}_aod_{name}": value for name, value in aod.items()}
    return found


def baseline_study(architecture: str, study: Study, scratch: Path) -> Study:
    """Return the study of a baseline to compare a run with; its files go to `scratch`."""
    params = study.params
    # Only the ranks of the next window are needed: no lists, no profile, no fit of the last one.
    # `sliding` fits on a window several times: a carried model would count it as often.
    counted = replace(
        params,
        model=replace(params.model, architecture=architecture, features=(), past_length=0),
        training=replace(params.training, fit_last=False, carry_model=False),
        evaluation=replace(
            params.evaluation,
            predictions=0,
            lists=0,
            train_sessions=0,
            attention_of=(),
        ),
        profile=replace(params.profile, window=None),
        compute=replace(params.compute, processes=1, device="cpu", shard_items=False),
    )
    folders = {"results": scratch, "models": scratch / "models"}
    return replace(study, params=counted, **folders)


@contextmanager
def _only_warnings() -> Iterator[None]:
    """Suppress the line that is logged for each window: the run's own log has these windows."""
    logger = logging.getLogger("dayahead.train")
    before = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(before)
