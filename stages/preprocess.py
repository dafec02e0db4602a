"""DVC stage `preprocess`: from the event log to one set of files per window."""

import logging
from pathlib import Path

from dayahead.core.errors import exit_with_message


def main() -> None:
    from dayahead.config.params import load_params
    from dayahead.core.project import stage_lock
    from dayahead.tracking.runs import stage_run

    logging.basicConfig(level=logging.INFO, format="%(message)s")
    params = load_params()
    raw, windows = Path("data/raw"), Path("data/windows")
    with stage_lock("preprocess"), stage_run("preprocess", params) as run:
        from dayahead.dataset.named_features import check_features
        from dayahead.dataset.schema import load_dataset
        from dayahead.preprocess.stage import preprocess

        dataset = load_dataset(params.dataset)
        check_features(dataset, params)
        preprocess(
            raw=raw,
            folder=windows,
            dataset=dataset,
            window=params.window,
            config=params.preprocess,
            machine=params.machine,
        )
        run.log_input(f"{params.dataset} events", raw, raw / "manifest.json")
        for name in ("windows.json", "statistics.json", "schema.pbtxt", "vocabulary"):
            run.log_artifact(windows / name, "dataset")


if __name__ == "__main__":
    with exit_with_message():
        main()
