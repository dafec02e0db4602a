"""DVC stage `train`: fit on each window in turn and measure on the next."""

from pathlib import Path

from dayahead.config.params import load_params
from dayahead.errors import told_plainly
from dayahead.locks import one_at_a_time
from dayahead.tracking.runs import stage_run
from dayahead.training.protocol import train
from dayahead.training.run import Study


def main() -> None:
    params = load_params()
    with one_at_a_time("train"), stage_run("train", params) as run:
        study = Study(
            dataset=params.dataset,
            first=params.window.first,
            last=params.window.last,
            model=params.model,
            task=params.task,
            loss=params.loss,
            training=params.training,
            evaluation=params.evaluation,
            windows=Path("data/windows"),
            results=Path("results"),
            models=Path("models"),
            on_window=run.log_window,
        )
        train(study, params.compute)
        run.log_artifacts(study.results / "ranks", "ranks")
        run.log_artifact(study.results / "windows.csv")
        if params.tracking.log_model and not params.model.features:  # served by ids alone
            run.log_model(study.models, Path("stages/served_model.py"), "1,2")


if __name__ == "__main__":
    with told_plainly():
        main()
