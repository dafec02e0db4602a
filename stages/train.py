"""DVC stage `train`: fit on each window in turn and measure on the next."""

from pathlib import Path

from dayahead.config.params import load_params
from dayahead.errors import told_plainly
from dayahead.training.protocol import train
from dayahead.training.run import Study


def on_window(window, result, timing):
    pass


def main() -> None:
    params = load_params()
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
        on_window=on_window,
    )
    train(study, params.compute)


if __name__ == "__main__":
    with told_plainly():
        main()
