"""DVC stage `aggregate`: average over the windows, write the report."""

from pathlib import Path

from dayahead.config.params import flattened, load_params
from dayahead.errors import told_plainly
from dayahead.evaluation.aggregation import aggregate


def main() -> None:
    params = load_params()
    aggregate(
        results=Path("results"),
        windows=Path("data/windows"),
        cutoffs=params.evaluation.cutoffs,
        settings=flattened(params),
    )


if __name__ == "__main__":
    with told_plainly():
        main()
