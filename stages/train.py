"""DVC stage `train`: fit on each window in turn, evaluate on the next."""

import os
from dataclasses import replace
from pathlib import Path

from dayahead.core.errors import exit_with_message

with exit_with_message():
    from dayahead.config.params import load_params
    from dayahead.core.project import stage_lock
    from dayahead.distributed.launchers import exec_launcher, is_secondary_process
    from dayahead.tracking.outbox import PIPELINE_RUN, pipeline_run_key
    from dayahead.tracking.runs import stage_run
    from dayahead.train.baselines import train_baselines
    from dayahead.train.run import Study
    from dayahead.train.stage import train


def main() -> None:
    params = load_params()
    exec_launcher(os.environ | {PIPELINE_RUN: pipeline_run_key()})
    windows, results, models = map(Path, ("data/windows", "results", "models"))
    study = Study(params=params, windows=windows, results=results, models=models)
    if is_secondary_process(os.environ):
        train(study)
        return
    with stage_lock("train"), stage_run("train", params) as run:
        run.log_input(params.dataset, study.windows, study.windows / "windows.json")
        run.log_metrics(train(replace(study, on_window=run.log_window)))
        for name in ("ranks", "windows.csv", *(["profile"] if params.profile.window else [])):
            run.log_artifact(study.results / name)
        if params.tracking.log_model and not params.model.features:  # served by ids alone
            run.log_model(study.models, Path("src/dayahead/serve/pyfunc.py"))
        run.log_metrics(train_baselines(study))


if __name__ == "__main__":
    with exit_with_message():
        main()
