"""Phases of tasks on a Dask cluster, and the scratch files between them."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from distributed import Client, KilledWorker, as_completed
from tqdm import tqdm

from dayahead.core.errors import DataError

T = TypeVar("T")
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Phases:
    """Runs the tasks of one phase after the other."""

    client: Client
    scratch: Path

    def run(
        self, phase: str, function: Callable[..., T], tasks: Sequence[Sequence[Any]]
    ) -> list[T]:
        """Call `function` with each task's arguments on the workers; results in their order.

        Raises:
            DataError: workers died of a task again and again.
        """
        futures = [self.client.submit(function, *task, pure=False) for task in tasks]
        with tqdm(total=len(tasks), desc=phase, disable=None, leave=False) as bar:
            for future in as_completed(futures):
                if future.status == "error":
                    break
                bar.update()
        try:
            results: list[T] = self.client.gather(futures)
        except KilledWorker:
            raise DataError(
                f"preprocess, {phase}: Dask workers ended again and again, out of memory or "
                f"killed; raise machine.memory_limit or lower machine.workers"
            ) from None
        finally:
            self.client.cancel(futures)
        _log.info("preprocess: %s: %d done", phase, len(tasks))
        return results

    @property
    def n_threads(self) -> int:
        """Tasks that run at once."""
        return int(sum(self.client.ncores().values()))

    def path(self, phase: str, number: int) -> Path:
        """A scratch file of a phase."""
        return self.scratch / f"{phase}-{number:05d}.events"

    def clear(self, phase: str) -> None:
        """Make room: nobody reads the events of this phase any more."""
        for path in self.scratch.glob(f"{phase}-*.events"):
            path.unlink()
