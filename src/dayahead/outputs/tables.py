"""The tables in results/: windows, ranks (from which all metrics are computed) and evidence."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from dayahead.config.baselines import baselines_beside
from dayahead.core.columns import (
    POSITION,
    POSITIONED_RANKS_SCHEMA,
    RANK,
    RANKS_SCHEMA,
    SESSION_ID,
    TARGET,
    WINDOW,
)
from dayahead.core.errors import ConfigError, DataError
from dayahead.core.files import write_csv, write_parquet
from dayahead.metrics.metrics import mean, metric_names, window_metrics


@dataclass(frozen=True)
class WindowRanks:
    """One window's targets, session after session in the order of the window's file."""

    session_ids: pa.ChunkedArray
    """Id of each target's session."""
    positions: NDArray[np.int32] | None
    """Position of each target in its session, from 1 on; None: each session's last item."""
    targets: NDArray[np.int32]
    """Catalogue indices."""
    ranks: NDArray[np.int32]
    """1 is best, 0 where the target was no candidate."""

    @property
    def n_sessions(self) -> int:
        """Number of evaluated sessions, of each of which the targets follow each other."""
        if self.positions is None or not len(self.positions):
            return len(self.ranks)
        ids = self.session_ids
        is_other = pc.not_equal(ids.slice(1), ids.slice(0, len(ids) - 1)).to_numpy()
        return 1 + int(np.count_nonzero(is_other | (np.diff(self.positions) <= 0)))


@dataclass(frozen=True)
class WindowResult:
    """One row of windows.csv."""

    window: str
    n_sessions: int
    target_outside: float
    """Share of targets that were no candidates."""
    metrics: dict[str, float]
    """Means over the targets."""
    train_loss: float | None
    """None for baselines."""
    train_metrics: dict[str, float]
    """The same metrics over sessions that were just fitted; empty where none were evaluated."""


def window_result(
    window: str,
    ranks: WindowRanks,
    cutoffs: Sequence[int],
    train_loss: float | None,
    train_metrics: dict[str, float],
    packaged: Sequence[str] = (),
) -> WindowResult:
    """Return a window's row of windows.csv from its ranks (0 is a miss).

    Raises:
        ConfigError: a metric of another package fails.
        DataError: the window has no sessions.
    """
    n_targets = len(ranks.ranks)
    if n_targets == 0:
        raise DataError(
            f"window {window} has no sessions to evaluate on; raise window.min_sessions, or widen "
            f"the interval of evaluation.split in the data set's file"
        )
    return WindowResult(
        window=window,
        n_sessions=ranks.n_sessions,
        target_outside=int(np.count_nonzero(ranks.ranks == 0)) / n_targets,
        metrics=window_metrics(ranks.ranks, cutoffs, packaged),
        train_loss=train_loss,
        train_metrics=train_metrics,
    )


def write_windows(path: Path, results: Sequence[WindowResult], n_written: int = 0) -> None:
    """Write windows.csv; floats read back as the same floats.

    Columns train_<metric> follow the train loss where train sessions were evaluated; they are empty
    for a window without any. Where the file holds the first `n_written` results, only the others
    are added, unless they need more columns.
    """
    metrics = list(results[0].metrics) if results else []
    trained = metrics if any(result.train_metrics for result in results) else []
    had_trained = any(result.train_metrics for result in results[:n_written])
    rows: list[Sequence[object]] = []
    if n_written == 0 or had_trained != bool(trained):
        n_written = 0
        head = (WINDOW, "n_sessions", "target_outside")
        rows = [[*head, *metrics, "train_loss", *(f"train_{name}" for name in trained)]]
    for result in results[n_written:]:
        before = (result.window, result.n_sessions, result.target_outside)
        after = (result.train_metrics.get(name) for name in trained)
        rows.append([*before, *result.metrics.values(), result.train_loss, *after])
    write_csv(path, rows, is_longer=n_written > 0)


@contextmanager
def reading(path: Path, expected: str) -> Iterator[None]:
    """Read a file of results/ in this block.

    Raises:
        DataError: the file is not as `expected`, whatever error the block raises.
    """
    try:
        yield
    except FileNotFoundError:
        raise DataError(
            f"{path}: expected {expected} (it is not there); run "
            f"`dvc repro -f train`, or `dvc exp apply NAME` after `dvc exp run --temp`, "
            f"or `dvc pull` if another has pushed it"
        ) from None
    except (
        OSError, LookupError, ValueError, TypeError, csv.Error, ConfigError, pa.ArrowException,
    ) as error:  # fmt: skip
        found = "; ".join(str(error).splitlines())
        match error:
            case ConfigError():
                kind = ""
            case KeyError():
                kind = "it lacks "
            case _:
                kind = f"{type(error).__name__}: "
        raise DataError(
            f"{path}: expected {expected} ({kind}{found}); run `dvc repro -f train`"
        ) from None


def read_windows(
    path: Path, cutoffs: Sequence[int], packaged: Sequence[str] = ()
) -> list[WindowResult]:
    """Read windows.csv, with the metrics `metric_names` of these cutoffs and packages.

    Raises:
        DataError: the file is missing or empty, lacks a column or has a value that is no number.
    """
    names = metric_names(cutoffs, packaged)
    besides = f", {', '.join(packaged)} too" if packaged else ""
    expected = f"the metrics at {', '.join(map(str, cutoffs))}{besides}"
    return _read_rows(path, names, expected)


def _read_rows(path: Path, names: Sequence[str], expected: str) -> list[WindowResult]:
    with reading(path, f"windows with {expected}"), path.open(newline="") as file:
        first, *more = csv.DictReader(file)
        return [_window_result_of(row, names) for row in (first, *more)]


def _window_result_of(row: dict[str, str], names: Sequence[str]) -> WindowResult:
    return WindowResult(
        window=row[WINDOW],
        n_sessions=int(row["n_sessions"]),
        target_outside=float(row["target_outside"]),
        metrics={name: float(row[name]) for name in names},
        train_loss=float(row["train_loss"]) if row["train_loss"] else None,
        train_metrics={
            name: float(row[f"train_{name}"]) for name in names if row.get(f"train_{name}")
        },
    )


def mean_metrics(rows: Sequence[WindowResult]) -> dict[str, float]:
    """Return the average of each metric over windows (AOD)."""
    return {name: mean([row.metrics[name] for row in rows]) for name in rows[0].metrics}


def baseline_path(results: Path, baseline: str) -> Path:
    """Return the path of a baseline's table, laid out as windows.csv."""
    return results / "baselines" / f"{baseline}.csv"


def read_baselines(
    results: Path,
    architecture: str,
    rows: Sequence[WindowResult],
    *,
    has_ticks: bool = False,
) -> dict[str, list[WindowResult]]:
    """Read the tables of the baselines that a run of `architecture` is compared with.

    `rows` are the run's own, of windows.csv, whose metrics are read. A run that `has_ticks` has
    other candidates than its baselines: items of the window, and not those withdrawn within it.

    Raises:
        DataError: a table is missing, damaged, or of other windows, sessions or candidates.
    """
    found = {}
    for name in baselines_beside(architecture):
        path = baseline_path(results, name)
        found[name] = _read_rows(path, [*rows[0].metrics], "the metrics of windows.csv")
        for own, other in zip_longest(rows, found[name]):
            if own and other and _is_comparable(own, other, has_ticks=has_ticks):
                continue
            window = (own or other).window
            raise DataError(
                f"{path}: expected the windows, sessions and candidates of windows.csv, found "
                f"others from window {window} on; run `dvc repro -f train`"
            )
    return found


def _is_comparable(own: WindowResult, other: WindowResult, *, has_ticks: bool) -> bool:
    is_same = (own.window, own.n_sessions) == (other.window, other.n_sessions)
    return is_same and (has_ticks or own.target_outside == other.target_outside)


def write_evidence(path: Path, weights: Mapping[str, float]) -> None:
    """Write evidence.csv: the weight of each feature; floats read back as the same floats."""
    write_csv(path, [("feature", "weight"), *weights.items()])


def read_evidence(path: Path) -> dict[str, float]:
    """Read evidence.csv.

    Raises:
        DataError: the file is missing or empty, has other columns or a weight that is no number.
    """
    expected = "the columns feature and weight, a number"
    with reading(path, expected), path.open(newline="") as file:
        _, *rows = csv.reader(file)
        return {feature: float(weight) for feature, weight in rows}


def ranks_path(results: Path, window: str) -> Path:
    """Return the path of one window's ranks."""
    return results / "ranks" / f"{window}.parquet"


def ranked_windows(results: Path) -> list[str]:
    """Return the windows with ranks in a results folder, in order of time.

    Raises:
        DataError: there are none.
    """
    windows = sorted(path.stem for path in (results / "ranks").glob("*.parquet"))
    if not windows:
        raise DataError(
            f"{results / 'ranks'}: expected <window>.parquet files, found none; run "
            f"`dvc repro train`, or `dvc pull` where the run was made elsewhere"
        )
    return windows


def write_ranks(results: Path, window: str, ranks: WindowRanks) -> None:
    """Write one window's ranks whole; a miss is null."""
    schema = RANKS_SCHEMA if ranks.positions is None else POSITIONED_RANKS_SCHEMA
    columns = {
        SESSION_ID: ranks.session_ids,
        POSITION: ranks.positions,
        TARGET: ranks.targets,
        RANK: pa.array(ranks.ranks, pa.int32(), mask=ranks.ranks == 0),
    }
    given = {name: columns[name] for name in schema.names}
    write_parquet(ranks_path(results, window), pa.table(given, schema=schema))


def read_ranks(results: Path, window: str) -> WindowRanks:
    """Read one window's ranks.

    Raises:
        DataError: the file is missing, damaged, empty or has other columns.
    """
    path = ranks_path(results, window)
    with reading(path, f"ranks with the columns {', '.join(RANKS_SCHEMA.names)}"):
        # Not read_table(schema=...): it fills a missing column with nulls, which mean misses.
        table = pq.ParquetFile(path).read()
        if table.schema not in (RANKS_SCHEMA, POSITIONED_RANKS_SCHEMA):
            found = ", ".join(f"{each.name} {each.type}" for each in table.schema)
            raise TypeError(f"found {found}")
    return WindowRanks(
        session_ids=table[SESSION_ID],
        positions=table[POSITION].to_numpy() if POSITION in table.column_names else None,
        targets=table[TARGET].to_numpy(),
        ranks=table[RANK].fill_null(0).to_numpy(),
    )
