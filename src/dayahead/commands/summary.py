"""`dayahead summary`: the averages of the last run."""

from dayahead.config.params import load_params
from dayahead.core.project import project_root


def summary() -> None:
    """Print the average over days (AOD) of results/ beside those of the counting baselines."""
    from dayahead.summary import summarize_run

    root = project_root()
    print(summarize_run(load_params(root / "params.yaml"), root))
