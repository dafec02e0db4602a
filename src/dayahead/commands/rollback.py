"""`dayahead rollback`: serve the model before the current one again."""

from typing import Annotated

import typer

from dayahead.commands import nightly


def rollback(
    reason: Annotated[str, typer.Option(help="Why, for the history and for MLflow.")] = "by hand",
) -> None:
    """Publish the previous model again, and move the aliases champion and previous in MLflow.

    The withdrawn model is not published again by later nights; a second rollback takes it back.
    """
    with nightly.retried_later():
        outcome = nightly.project_served().rollback(reason)
    print(f"{outcome.outcome}: {outcome.why}")
