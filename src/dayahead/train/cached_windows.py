"""What is kept of a run in the store: the model after each window, and what it came to."""

import logging
import platform
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors.torch import load_file
from torch import Tensor

from dayahead.core.files import read_json, write_json
from dayahead.core.store import Entries
from dayahead.distributed.process import Process
from dayahead.model.checkpoint import write_tensors
from dayahead.train.cache_keys import Keys, Machine
from dayahead.train.results import EvaluatedWindow
from dayahead.train.run import Fit, Run
from dayahead.windows.folder import Window

T = TypeVar("T")
FITS, MEASURES = "fits", "measures"
"""Folders of the store."""
_log = logging.getLogger(__name__)


class CachedWindows:
    """The fits and measurements of one run; only the main process reads and writes them.

    Args:
        cache: folder of the cache.
        run: of the main process.
        windows: that are fitted and measured, in order.
    """

    def __init__(self, cache: Path, run: Run, windows: Sequence[Window]) -> None:
        self.fits = Entries(cache / FITS)
        self.measures = Entries(cache / MEASURES)
        self.windows = windows
        self.config = run.params.machine
        self.machine = _machine(run.process, is_sharded=not run.shard.is_whole)
        self.keys = Keys(run, windows, self.machine if self.config.strict else None)
        self._has_warned = False

    def newest(self, lowest: int, highest: int) -> tuple[int, Fit, dict[str, Tensor]] | None:
        """Find the last place from `lowest` to `highest` with a fit that stands.

        Returns:
            The place, what fitting came to there, and the learner's state.
        """
        for place in range(highest, lowest - 1, -1):
            found = self.fits.get(self.keys.fits[place], self._read_fit)
            if found is not None:
                fit, state = found
                return place, Fit(self.windows[place], **fit), state
        return None

    def keep_fit(self, place: int, fit: Fit, state: dict[str, Tensor]) -> None:
        """Keep a fit, and forget those before it that are more than machine.keep_fits."""

        def write(folder: Path) -> None:
            figures = {"loss": fit.loss, "n_sessions": fit.n_sessions, "seconds": fit.seconds}
            write_json(folder / "fit.json", {"machine": self.machine, "fit": figures})
            write_tensors(folder / "state.safetensors", state)

        self.fits.put(self.keys.fits[place], write)
        if self.config.keep_fits != "all":
            self.fits.remove(self.keys.fits[: max(0, place + 1 - self.config.keep_fits)])

    def measured(self, place: int, read: Callable[[Path], T]) -> T | None:
        """What `read` makes of what is known of the fit at `place` on the next window, if it is."""

        def checked(folder: Path) -> T:
            self._compare(read_json(folder / "machine.json"), folder)
            return read(folder)

        return self.measures.get(self.keys.measured(place), checked)

    def keep_measured(self, place: int, measured: EvaluatedWindow) -> None:
        """Keep what the fit at `place` came to on the next window."""

        def write(folder: Path) -> None:
            measured.write(folder)
            write_json(folder / "machine.json", self.machine)

        self.measures.put(self.keys.measured(place), write)

    def _read_fit(self, folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
        note = read_json(folder / "fit.json")
        self._compare(note["machine"], folder)
        return note["fit"], load_file(folder / "state.safetensors")

    def _compare(self, machine: Machine, folder: Path) -> None:
        """Bits are the same only where machine and threads are."""
        names = {*machine, *self.machine}
        others = [
            f"{name} {machine.get(name)}, here {self.machine.get(name)}"
            for name in sorted(names)
            if machine.get(name) != self.machine.get(name)
        ]
        if others and not self._has_warned:
            _log.warning(
                "%s: written by another set-up (%s), so figures agree, but not to the last bit; "
                "with machine.strict=true this run makes its own",
                folder,
                "; ".join(others),
            )
        self._has_warned |= bool(others)


def _machine(process: Process, *, is_sharded: bool) -> Machine:
    if process.device.type == "cuda":
        kind = {"device": torch.cuda.get_device_name(process.device)}
    else:
        kind = {"device": platform.machine(), "cpu": torch.backends.cpu.get_cpu_capability()}
    threads = {} if process.device.type == "cuda" else {"threads": torch.get_num_threads()}
    items = {"items": "shared out"} if is_sharded else {}
    return {**kind, **threads, **items, "processes": process.rank.world_size}
