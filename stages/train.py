"""DVC stage `train`: fit on each window in turn, evaluate on the next."""

import os
from pathlib import Path

from dayahead.core.errors import exit_with_message


def main() -> None:
    from dayahead.config.params import load_params
    from dayahead.core.project import stage_lock
    from dayahead.distributed.launchers import exec_launcher, is_secondary_process
    from dayahead.tracking.outbox import PIPELINE_RUN, pipeline_run_key
    from dayahead.tracking.runs import stage_run
    from dayahead.train.study import Study

    params = load_params()
    study = Study(params=params)
    exec_launcher(os.environ | {PIPELINE_RUN: pipeline_run_key()})
    if is_secondary_process(os.environ):
        from dayahead.train.stage import train

        train(study)
        return
    with stage_lock("train"), stage_run("train", params) as run:
        from dayahead.train.checks import warn_of_unread_settings
        from dayahead.train.compared_baselines import train_baselines
        from dayahead.train.stage import train

        run.log_input(params.dataset, study.windows, study.windows / "windows.json")
        warn_of_unread_settings(params)
        metrics = train(study, run.log_window)
        if params.tracking.log_model:
            run.log_model(study.models, Path("src/dayahead/serve/pyfunc.py"))
        run.log_metrics(metrics | train_baselines(study))
        profiled = ["profile"] * bool(params.profile.window)
        for name in ("ranks", "windows.csv", "lists.csv", *profiled):
            run.log_artifact(study.results / name)


if __name__ == "__main__":
    with exit_with_message():
        main()
