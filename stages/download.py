"""DVC stage `download`: source files or the generator to data/raw."""

import logging
from pathlib import Path

from dayahead.core.errors import exit_with_message


def main() -> None:
    from dayahead.config.params import load_params
    from dayahead.core.project import stage_lock
    from dayahead.tracking.runs import stage_run

    logging.basicConfig(level=logging.INFO, format="%(message)s")
    params = load_params()
    raw = Path("data/raw")
    with stage_lock("download"), stage_run("download", params) as run:
        from dayahead.dataset.manifest import MANIFEST, QUALITY_REPORT
        from dayahead.dataset.named_features import check_features
        from dayahead.dataset.schema import load_dataset
        from dayahead.download.stage import download

        dataset = load_dataset(params.dataset)
        check_features(dataset, params)
        download(dataset, params.dataset, raw)
        run.log_artifact(raw / MANIFEST, "dataset")
        run.log_artifact(raw / QUALITY_REPORT, "dataset")


if __name__ == "__main__":
    with exit_with_message():
        main()
