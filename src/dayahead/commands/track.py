"""`dayahead track`: send what the trackers missed."""

from typing import Annotated

import typer

from dayahead.core.errors import ConfigError, TrackingError


def track(
    sync: Annotated[
        bool, typer.Option("--sync", help="Upload the records that a tracker has missed.")
    ] = False,
) -> None:
    """Upload the records that each tracker missed while it was unreachable."""
    if not sync:
        raise ConfigError("track: expected the option --sync")
    from dayahead.tracking.sync import sync_all

    report = sync_all()
    n_records = sum(report.uploaded.values())
    stores = ", ".join(report.stores) or "no tracker"
    print(f"{n_records} records of {len(report.uploaded)} stages sent to {stores}")
    if report.failures:
        lines = [f"{stage}: {reason}" for stage, reason in report.failures.items()]
        raise TrackingError("not yet sent:\n  " + "\n  ".join(lines))
