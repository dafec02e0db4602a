"""DVC stage `preprocess`: from the event log to one set of files per window."""

import logging
from pathlib import Path

from dayahead.config.dataset import load_dataset
from dayahead.config.params import load_params
from dayahead.data.preprocessing import preprocess
from dayahead.errors import told_plainly


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    params = load_params()
    preprocess(
        raw=Path("data/raw"),
        folder=Path("data/windows"),
        dataset=load_dataset(params.dataset),
        window=params.window,
        config=params.preprocess,
    )


if __name__ == "__main__":
    with told_plainly():
        main()
