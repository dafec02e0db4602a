"""DVC stage `download`: the data set's events into data/raw."""

import logging
from pathlib import Path

from dayahead.config.dataset import load_dataset
from dayahead.config.params import load_params
from dayahead.data.download import download
from dayahead.errors import told_plainly


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    with told_plainly():
        params = load_params()
        download(load_dataset(params.dataset), params.dataset, Path("data/raw"))


if __name__ == "__main__":
    main()
