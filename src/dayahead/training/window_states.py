"""What is kept of a run in the store: the model after each window, and what it came to."""

import logging
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors.torch import load, save
from torch import Tensor

from dayahead.config.training import ComputeConfig
from dayahead.errors import TrainingError
from dayahead.files import read_json, write_json
from dayahead.store import Entries
from dayahead.training.keys import Keys
from dayahead.training.results import MeasuredWindow
from dayahead.training.run import Fit

T = TypeVar("T")
FITS, MEASURES = "fits", "measures"
"""Folders of the store."""
_log = logging.getLogger(__name__)


class WindowStates:
    """The fits and measurements of one run; only the main process reads and writes them.

    Args:
        store: folder of the store.
        keys: of the run's windows.
        compute: how many fits are kept, and whether those of another machine are refused.
        n_processes: of the run.
    """

    def __init__(self, store: Path, keys: Keys, compute: ComputeConfig, n_processes: int) -> None:
        self.fits = Entries(store / FITS)
        self.measures = Entries(store / MEASURES)
        self.keys = keys
        self.compute = compute
        self.machine = _machine(keys.run.process.device, n_processes)
        self._has_warned = False

    def newest(self, lowest: int, highest: int) -> tuple[int, Fit, dict[str, Tensor]] | None:
        """Find the last place from `lowest` to `highest` with a fit that stands.

        Returns:
            The place, what fitting came to there, and the learner's state.

        Raises:
            TrainingError: compute.strict, and another machine wrote it.
        """
        for place in range(highest, lowest - 1, -1):
            found = self.fits.get(self.keys.fits[place], self._read_fit)
            if found is not None:
                fit, state = found
                return place, Fit(self.keys.windows[place], **fit), state
        return None

    def keep_fit(self, place: int, fit: Fit, state: dict[str, Tensor]) -> None:
        """Keep a fit, and forget those before it that are more than compute.keep_states."""

        def write(folder: Path) -> None:
            figures = {"loss": fit.loss, "n_sessions": fit.n_sessions, "seconds": fit.seconds}
            write_json(folder / "fit.json", {"machine": self.machine, "fit": figures})
            # Not save_file: what it says of a full disk is no OSError.
            (folder / "state.safetensors").write_bytes(save(state))

        self.fits.put(self.keys.fits[place], write)
        if self.compute.keep_states != "all":
            n_kept = 1 if self.compute.keep_states == "last" else self.compute.keep_states
            self.fits.remove(self.keys.fits[: max(0, place + 1 - n_kept)])

    def measured(self, place: int, read: Callable[[Path], T]) -> T | None:
        """What `read` makes of what the fit at `place` came to on the next window, if it is known.

        Raises:
            TrainingError: compute.strict, and another machine wrote it.
        """

        def checked(folder: Path) -> T:
            self._compare(read_json(folder / "machine.json"), folder)
            return read(folder)

        return self.measures.get(self.keys.measured(place), checked)

    def keep_measured(self, place: int, measured: MeasuredWindow) -> None:
        """Keep what the fit at `place` came to on the next window."""

        def write(folder: Path) -> None:
            measured.write(folder)
            write_json(folder / "machine.json", self.machine)

        self.measures.put(self.keys.measured(place), write)

    def _read_fit(self, folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
        note = read_json(folder / "fit.json")
        self._compare(note["machine"], folder)
        return note["fit"], load((folder / "state.safetensors").read_bytes())

    def _compare(self, machine: dict[str, str | int], folder: Path) -> None:
        """Bits are the same only where machine and threads are."""
        others = {
            name: f"{name} {machine.get(name)}, here {value}"
            for name, value in self.machine.items()
            if machine.get(name) != value
        }
        if not others:
            return
        told = f"{folder}: written by another set-up ({'; '.join(others.values())})"
        if self.compute.strict:
            raise TrainingError(
                f"{told}, and compute.strict is true: give this run the same, or remove {folder} "
                f"for a fit of its own"
            )
        if not self._has_warned:
            _log.warning("%s: figures agree, but not to the last bit", told)
        self._has_warned = True


def _machine(device: torch.device, n_processes: int) -> dict[str, str | int]:
    """What decides the last bit of a sum, beside settings, source and packages."""
    is_cuda = device.type == "cuda"
    return {
        "machine": platform.machine(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "device": torch.cuda.get_device_name(device) if is_cuda else "cpu",
        "processes": n_processes,
        "threads": torch.get_num_threads(),
    }
