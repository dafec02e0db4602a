"""`dayahead rollback`: serve the model before the current one again."""

import sys
from typing import Annotated

import typer

from dayahead.core.errors import redacted


def rollback(
    reason: Annotated[str, typer.Option(help="Why, for the history and for MLflow.")] = "by hand",
) -> None:
    """Publish the previous model again, and move the aliases champion and previous in MLflow.

    The withdrawn model is not published again by later nights; a second rollback takes it back.
    """
    from dayahead.commands.nightly import project_night
    from dayahead.nightly.pipeline import RetryLaterError

    try:
        outcome = project_night().rollback(reason)
    except RetryLaterError as error:
        print(f"error: {redacted(str(error))}", file=sys.stderr)
        raise typer.Exit(75) from None
    print(f"{outcome.outcome}: {outcome.why}")
