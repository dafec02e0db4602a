"""Remove a project's data about users, and list copies that it cannot reach."""

import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from dayahead.core.cache import DAMAGED, KINDS, Cache
from dayahead.core.errors import BusyError, ConfigError
from dayahead.core.files import remove_tree
from dayahead.dataset.schema import load_dataset
from dayahead.erasure.holdings import LIVE, OUTPUTS, Holding, Holdings, event_logs, find_holdings
from dayahead.erasure.suppression import suppress_users
from dayahead.live.log_file import erase

LOCKS = ("download", "preprocess", "train", "aggregate", "nightly")
"""Names of the locks of processes that write the data to be removed."""


@dataclass(frozen=True)
class Erasure:
    """Data that were found and, unless it was a dry run, removed."""

    holdings: Holdings
    missing: Sequence[str]
    """Users for whom no row was found."""
    kept: Sequence[Holding]
    """Data that were not removed because another process uses them."""
    unsearched: int
    """Number of files and folders that are removed without a search: fetched source files, and what
    is damaged or unfinished."""


def forget(
    root: Path, dataset: Path, users: Collection[str], dvc_cache: Path, *, dry_run: bool
) -> Erasure:
    """Remove everything that holds a row of the users or of their sessions, unless `dry_run`.

    Before that they are listed in the data set's file, so that no later `download` brings them
    back. This includes users for whom nothing was found, because a source may hold them.

    Raises:
        BusyError: a stage or a night is at work here.
        ConfigError: the data set's file names no column of users, or its list of forgotten ones
            cannot be replaced.
        DataError: a log of events is damaged. Nothing was changed, unless the damage was found
            while events were being removed.
    """
    config = load_dataset(dataset.stem, dataset.parent)
    if config.columns.user_id is None:
        raise ConfigError(
            f"datasets/{dataset.name}: columns.user_id names no column, so nothing here is known "
            f"to be of a user"
        )
    with _no_stage_running(root):
        holdings = find_holdings(root, users, dvc_cache, config.split.seed)
        # Damaged entries of the cache are in both.
        unsearched = {*_unsearched(root), *holdings.damaged}
        kept = []
        if not dry_run:
            suppress_users(dataset, users)
            kept = _erased_from_logs(root, users, holdings.sessions)
            whole = (each for each in (*holdings.found, *unsearched) if each.place != LIVE)
            kept += [each for each in whole if not _is_removed(root, each)]
    missing = [user for user in users if not holdings.rows[user]]
    return Erasure(holdings, missing, kept, len(unsearched))


def _erased_from_logs(
    root: Path, users: Collection[str], sessions: Collection[str]
) -> list[Holding]:
    """Remove events from the logs; return those whose files may still hold some."""
    # All logs, because one that was in use the last time may hold what is no longer found.
    return [Holding(LIVE, path, 0) for path in event_logs(root) if not erase(path, users, sessions)]


def _unsearched(root: Path) -> list[Holding]:
    """Return the cache entries that may hold rows in any format, or cannot be read."""
    found = []
    for kind in KINDS:
        place = f".dayahead/{kind}"
        for path in sorted((root / place).glob("*")):
            is_whole = path.suffix != DAMAGED and not path.name.startswith(".")
            if path.name != "locks" and (kind == "downloads" or not is_whole):
                found.append(Holding(place, path, 0))
    return found


def _is_removed(root: Path, holding: Holding) -> bool:
    if not holding.path.exists():
        return True
    if holding.place in OUTPUTS:
        shutil.rmtree(holding.path.resolve(), ignore_errors=True)  # may be a link to another disk
        remove_tree(holding.path)
        return not holding.path.exists()
    kind = holding.path.parent.name
    if holding.place == f".dayahead/{kind}" and kind in KINDS:
        return Cache(root / ".dayahead" / kind).discard(holding.path)
    holding.path.unlink(missing_ok=True)
    return True


@contextmanager
def _no_stage_running(root: Path) -> Iterator[None]:
    folder = root / ".dayahead"
    folder.mkdir(exist_ok=True)
    with ExitStack() as held:
        for name in LOCKS:
            try:
                held.enter_context(FileLock(folder / f"{name}.lock", blocking=False))
            except Timeout:
                raise BusyError(
                    f"{root}: {name} is running here; wait for it, and run this again"
                ) from None
        yield
