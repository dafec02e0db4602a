"""DVC stage `aggregate`: average over the windows, write the report."""

import logging
from pathlib import Path

from dayahead.core.errors import exit_with_message


def main() -> None:
    from dayahead.config.params import flat_settings, load_params
    from dayahead.core.project import stage_lock
    from dayahead.tracking.runs import stage_run

    logging.basicConfig(level=logging.INFO, format="%(message)s")
    params = load_params()
    with stage_lock("aggregate"), stage_run("aggregate", params) as run:
        from dayahead.aggregate.findings import Folders
        from dayahead.aggregate.stage import aggregate
        from dayahead.aggregate.summary import experiment_summary

        folders = Folders(Path("results"), Path("data/windows"), Path("data/raw"))
        run.log_input(params.dataset, folders.windows, folders.windows / "windows.json")
        found = aggregate(folders, params.evaluation.cutoffs, flat_settings(params))
        averages = found.summary.aod | found.lists.aod
        aod = {f"aod_{name}": value for name, value in averages.items()}
        run.log_metrics(aod)
        for name in ("aod.json", "lists.json", "report.html"):
            run.log_artifact(folders.results / name, "results")
    if (text := experiment_summary(params, Path.cwd())) is not None:
        logging.getLogger("dayahead").info("\n%s\n", text)


if __name__ == "__main__":
    with exit_with_message():
        main()
