"""Times of a stage by named, nested phases, and its peak memory.

A phase is timed if a stopwatch runs in its thread; otherwise it costs a few tenths of a
microsecond.
"""

import csv
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import astuple, dataclass, fields
from functools import wraps
from pathlib import Path
from typing import ParamSpec, Protocol, TypeVar, get_type_hints

from dayahead.core.errors import DataError
from dayahead.core.files import write_csv

P = ParamSpec("P")
T = TypeVar("T")
FOLDER = Path("results/phases")
"""Folder with a table for each stage."""
TOTAL, STEP = "total", "step"
"""Names of the row of the total, and of the phase of a step of a loop."""
_NOTHING = nullcontext()
_END = object()


@dataclass(frozen=True)
class PhaseRow:
    """A row of a table of phases."""

    phase: str
    """Names from the outermost phase inwards, joined by /; the first row is the total."""
    seconds: float
    own_seconds: float
    """Seconds in none of the phases within it; over all rows these sum to the total."""
    cpu_seconds: float
    """CPU time of all threads, for outermost phases and for all phases of a profile; else 0."""
    calls: int
    peak_mib: float
    """Peak memory of the process up to the phase's end, for outermost phases; else 0."""

    @property
    def depth(self) -> int:
        """Number of phases around it, including the total."""
        return 0 if self.phase == TOTAL else 1 + self.phase.count("/")


def idle_seconds(rows: Sequence[PhaseRow]) -> float:
    """Return a lower bound of the time in which no thread ran, from a table with CPU times."""
    own = {row.phase: row.cpu_seconds for row in rows}
    for row in rows[1:]:
        own[row.phase.rpartition("/")[0] or TOTAL] -= row.cpu_seconds
    return sum(max(0.0, row.own_seconds - own[row.phase]) for row in rows)


class Listener(Protocol):
    """Called when a phase is entered and left."""

    def enter(self, phase: "Phase") -> None:
        """Called before the clock of a phase starts."""

    def leave(self, phase: "Phase") -> None:
        """Called after the clock of a phase has stopped."""


class Phase:
    """A phase within another; as a context manager it adds to its seconds."""

    __slots__ = (
        *("_cpu_start", "_start", "calls", "children", "cpu_seconds", "name", "parent"),
        *("is_outermost", "peak_mib", "seconds", "watch"),
    )

    def __init__(self, name: str, watch: "Stopwatch", parent: "Phase | None") -> None:
        self.name = name
        self.watch = watch
        self.parent = parent
        self.is_outermost = parent is None or parent.parent is None
        self.children: dict[str, Phase] = {}
        self.seconds = self.cpu_seconds = self.peak_mib = 0.0
        self.calls = 0

    def child(self, name: str) -> "Phase":
        """Return the phase of this name within this one."""
        found = self.children.get(name)
        if found is None:
            found = self.children[name] = Phase(name, self.watch, self)
        return found

    @property
    def path(self) -> str:
        """Names from the outermost phase on."""
        if self.parent is None:
            return TOTAL
        return self.name if self.is_outermost else f"{self.parent.path}/{self.name}"

    def __enter__(self) -> None:
        """Start the clock."""
        watch = self.watch
        if watch.listener is not None:
            watch.listener.enter(self)
        watch.current = self
        if watch.counts_cpu or self.is_outermost:
            self._cpu_start = time.process_time()
        self._start = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        """Stop the clock."""
        self.seconds += time.perf_counter() - self._start
        self.calls += 1
        watch, parent = self.watch, self.parent
        if watch.counts_cpu or self.is_outermost:
            self.cpu_seconds += time.process_time() - self._cpu_start
        if self.is_outermost:
            self.peak_mib = max(self.peak_mib, peak_memory() / 2**20)
        if parent is not None:
            watch.current = parent
        if watch.listener is not None:
            watch.listener.leave(self)

    def remove(self, name: str) -> tuple[float, float]:
        """Remove phases of a name, subtract their time from all phases around; return that time."""
        seconds = cpu_seconds = 0.0
        for child in [*self.children.values()]:
            if child.name == name:
                removed = child.seconds, child.cpu_seconds
                del self.children[name]
            else:
                removed = child.remove(name)
            seconds += removed[0]
            cpu_seconds += removed[1]
        self.seconds -= seconds
        self.cpu_seconds -= cpu_seconds
        return seconds, cpu_seconds

    def rows(self) -> Iterator[PhaseRow]:
        """Yield the row of this phase, then those of the phases within it."""
        own = self.seconds - sum(child.seconds for child in self.children.values())
        yield PhaseRow(self.path, self.seconds, own, self.cpu_seconds, self.calls, self.peak_mib)
        for child in self.children.values():
            yield from child.rows()


class Stopwatch:
    """Times the phases of the thread in which it runs."""

    def __init__(self, listener: Listener | None = None, *, counts_cpu: bool = False) -> None:
        self.listener = listener
        self.counts_cpu = counts_cpu
        self.thread = threading.get_ident()
        self.root = self.current = Phase(TOTAL, self, None)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Record the phases of a block with this stopwatch instead of the one around it."""
        _RUNNING.append(self)
        try:
            with self.root:
                yield
        finally:
            _RUNNING.remove(self)

    def rows(self) -> list[PhaseRow]:
        """Return the table of phases so far, outer phases before those within them."""
        return list(self.root.rows())


# A stack: a profile runs within the stopwatch of its stage.
_RUNNING: list[Stopwatch] = []


def _running() -> Stopwatch | None:
    if not _RUNNING:
        return None
    watch = _RUNNING[-1]
    return watch if watch.thread == threading.get_ident() else None


def phase(name: str) -> AbstractContextManager[None]:
    """Return a context manager that counts a block as a phase of this name."""
    watch = _running()
    return _NOTHING if watch is None else watch.current.child(name)


def in_phase(name: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Return a decorator that counts each call of a function as a phase of this name."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @wraps(function)
        def timed(*args: P.args, **kwargs: P.kwargs) -> T:
            with phase(name):
                return function(*args, **kwargs)

        return timed

    return decorate


def steps(items: Iterable[T]) -> Iterator[T]:
    """Yield items; time their making as the phase "data" and their processing as "step".

    The loop over them must run to its end, or raise.
    """
    iterator = iter(items)
    while True:
        with phase("data"):
            item = next(iterator, _END)
        if item is _END:
            return
        with phase(STEP):
            yield item  # type: ignore[misc]


def add_rows(rows: Sequence[PhaseRow]) -> None:
    """Add the table of another stopwatch to the phase that is running here."""
    watch = _running()
    for row in rows[1:] if watch else ():
        found = watch.current  # type: ignore[union-attr]
        for name in row.phase.split("/"):
            found = found.child(name)
        found.seconds += row.seconds
        found.cpu_seconds += row.cpu_seconds * found.is_outermost
        found.calls += row.calls


def note_peak(mib: float) -> None:
    """Include memory of another process, such as a worker, in the peak of the outermost phase."""
    watch = _running()
    if watch is not None:
        outer = watch.current
        while not outer.is_outermost:
            assert outer.parent is not None
            outer = outer.parent
        for each in (outer, watch.root):
            each.peak_mib = max(each.peak_mib, mib)


def peak_memory() -> int:
    """Return the peak memory of this process, in bytes; 0 if unknown."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0
    values = (line.split() for line in status.splitlines() if line.startswith("VmHWM:"))
    return next((int(value) * 1024 for _, value, *_ in values), 0)


@contextmanager
def recorded(path: Path | None) -> Iterator[None]:
    """Time a block; if no stopwatch runs in this process, write the table to `path`, if given."""
    if _running() is not None:
        yield
        return
    watch = Stopwatch()
    with watch.running():
        yield
    if path is not None:
        write_phases(path, watch.rows())


def write_phases(path: Path, rows: Iterable[PhaseRow]) -> None:
    """Write a table of phases atomically."""
    table = [[each.name for each in fields(PhaseRow)]]
    for row in rows:
        name, *numbers = astuple(row)
        table.append([name, *(round(number, 6) for number in numbers)])
    write_csv(path, table)


def read_phases(path: Path) -> list[PhaseRow]:
    """Read a table of phases.

    Raises:
        DataError: the file is missing or has other columns.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            types = get_type_hints(PhaseRow).items()  # str, float and int read the text of a cell
            return [
                PhaseRow(**{name: type_(row[name]) for name, type_ in types})
                for row in csv.DictReader(file)
            ]
    except (OSError, KeyError, ValueError, TypeError) as error:
        raise DataError(
            f"{path}: expected a table of phases ({error!r}); run `dvc repro -f train`"
        ) from None
