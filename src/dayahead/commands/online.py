"""`dayahead online`: how the lists that services have shown are clicked."""

from datetime import UTC, datetime
from typing import Annotated

import typer

from dayahead.core.errors import ConfigError
from dayahead.core.project import project_root

_SINCE = typer.Option(help="First day of the lists, UTC, such as the first one of an A/B test.")


def online(since: Annotated[datetime | None, _SINCE] = None) -> None:
    """Print recall and NDCG of logged lists (`dayahead serve --log-lists`), by variant.

    The clicks are those of data/raw, up to its end.
    """
    from dayahead.live.list_log import DEFAULT_LISTS
    from dayahead.nightly.online import online_figures, online_lines

    root = project_root()
    if not (root / DEFAULT_LISTS).exists():
        raise ConfigError(
            f"{DEFAULT_LISTS}: there are no lists; start services in this folder with "
            f"`dayahead serve --log-lists`, and send a session_id with each request"
        )
    start = 0 if since is None else int(since.replace(tzinfo=UTC).timestamp()) * 1_000_000
    print("\n".join(online_lines(online_figures(root, start))))
