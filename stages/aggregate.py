"""DVC stage `aggregate`: average over the windows, write the report."""

from pathlib import Path

from dayahead.aggregate.stage import aggregate
from dayahead.config.params import flattened, load_params
from dayahead.core.errors import told_plainly
from dayahead.core.locks import one_at_a_time
from dayahead.tracking.runs import stage_run


def main() -> None:
    params = load_params()
    results = Path("results")
    with one_at_a_time("aggregate"), stage_run("aggregate", params) as run:
        average = aggregate(
            results=results,
            windows=Path("data/windows"),
            cutoffs=params.evaluation.cutoffs,
            settings=flattened(params),
        )
        run.log_metrics({f"aod_{name}": value for name, value in average.aod.items()})
        for name in ("aod.json", "report.html"):
            run.log_artifact(results / name, "results")


if __name__ == "__main__":
    with told_plainly():
        main()
