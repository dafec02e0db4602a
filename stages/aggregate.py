"""DVC stage `aggregate`: average over the windows, write the report."""

from pathlib import Path

from dayahead.core.errors import exit_with_message

with exit_with_message():
    from dayahead.aggregate.stage import aggregate
    from dayahead.config.params import flat_settings, load_params
    from dayahead.core.project import stage_lock
    from dayahead.tracking.runs import stage_run


def main() -> None:
    params = load_params()
    results, windows = Path("results"), Path("data/windows")
    with stage_lock("aggregate"), stage_run("aggregate", params) as run:
        run.log_input(params.dataset, windows, windows / "windows.json")
        average = aggregate(
            results=results,
            windows=windows,
            cutoffs=params.evaluation.cutoffs,
            settings=flat_settings(params),
        )
        run.log_metrics({f"aod_{name}": value for name, value in average.aod.items()})
        for name in ("aod.json", "report.html"):
            run.log_artifact(results / name, "results")


if __name__ == "__main__":
    with exit_with_message():
        main()
