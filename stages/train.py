"""DVC stage `train`: fit on each window in turn and measure on the next."""

import os
from dataclasses import replace
from pathlib import Path

from dayahead.config.params import load_params
from dayahead.core.errors import told_plainly
from dayahead.core.locks import one_at_a_time
from dayahead.distributed.launchers import hand_over, is_helper
from dayahead.tracking.pipeline_run import EXECUTION, execution_key
from dayahead.tracking.runs import stage_run
from dayahead.train.stage import study_of, train


def main() -> None:
    params = load_params()
    hand_over(os.environ | {EXECUTION: execution_key()})
    study = study_of(params, Path("data/windows"), Path("results"), Path("models"))
    if is_helper(os.environ):
        train(study, params.compute)
        return
    with one_at_a_time("train"), stage_run("train", params) as run:
        train(replace(study, on_window=run.log_window), params.compute)
        run.log_artifacts(study.results / "ranks", "ranks")
        run.log_artifact(study.results / "windows.csv")
        if params.tracking.log_model and not params.model.features:  # served by ids alone
            run.log_model(study.models, Path("stages/served_model.py"), "1,2")


if __name__ == "__main__":
    with told_plainly():
        main()
