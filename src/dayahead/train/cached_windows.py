"""Cached fits and evaluations of windows."""

import logging
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path

import torch
from pydantic import TypeAdapter
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from dayahead.core.cache import Cache, UnreadableEntryError, link_or_copy, reading_entry
from dayahead.core.errors import ModelFileError
from dayahead.core.files import read_json, write_json
from dayahead.core.fingerprints import fingerprint, package_version
from dayahead.core.phases import in_phase
from dayahead.distributed.process import Process
from dayahead.model.tensor_files import (
    AnyTensor,
    StoredTensor,
    is_sharded,
    send_rows,
    stored_tensors,
    write_tensors,
)
from dayahead.train.cache_keys import CacheKeys, Machine
from dayahead.train.catalogue import Catalogue
from dayahead.train.results import TABLES, EvaluatedWindow
from dayahead.train.run import Fit
from dayahead.train.study import Study
from dayahead.windows.folder import Window

CPU_VARIABLES = (
    *("ATEN_CPU_CAPABILITY", "MKL_CBWR", "MKL_DEBUG_CPU_TYPE", "MKL_ENABLE_INSTRUCTIONS"),
    *("DNNL_MAX_CPU_ISA", "ONEDNN_MAX_CPU_ISA", "ONEDNN_DEFAULT_FPMATH_MODE"),
)
"""Environment variables that choose the instructions of torch, MKL and oneDNN."""
ARITHMETIC = ("avx", "amx", "fma", "f16c", "asimd", "neon", "sve", "sme", "bf16", "fp16", "i8mm")
"""Prefixes of the names of these instructions in `torch.cpu.get_capabilities`."""
MISSING = "missing"
STATE = "state.safetensors"
Restore = Callable[[int, Fit, Mapping[str, Tensor | StoredTensor]], None]
_log = logging.getLogger(__name__)


class CachedWindows:
    """Fits and evaluations of a run in the cache; as a context manager it ends with `finish`.

    Only the main process reads and writes: on others nothing is found and nothing is written.
    """

    def __init__(
        self, study: Study, catalogue: Catalogue, windows: Sequence[Window], process: Process
    ) -> None:
        self.fits = Cache(study.cache / "fits")
        self.evaluations = Cache(study.cache / "evaluations")
        self.windows = windows
        self.config = study.params.machine
        self.process = process
        self.is_used = process.is_main
        self.is_sharded = study.params.compute.shard_items and process.rank.world_size > 1
        self.machine = _machine(process, is_sharded=self.is_sharded)
        of_keys = self.machine if self.config.strict else None
        self.keys = CacheKeys(study.params, catalogue, windows, process, of_keys)
        self.evaluation = fingerprint(self.keys.evaluation_settings)
        # Kept, as they hash files of windows.
        self.evaluation_key = cache(self.keys.evaluation)
        self.starts_afresh = study.params.training.starts_afresh
        self._has_warned = False
        # Fits are written in the background, while the next window is evaluated.
        self._writer = ThreadPoolExecutor(max_workers=1)
        self._writing: Future[None] | None = None

    def __enter__(self) -> "CachedWindows":
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Wait until the last fit is written; raises as `finish` does."""
        self.finish()

    @in_phase("cache")
    def restore_newest(self, lowest: int, highest: int, restore: Restore) -> bool:
        """Restore the newest cached fit from windows[lowest] to windows[highest], if there is one.

        `restore` gets the index of its window, the fit and the trainer's state. A fit that cannot
        be read, or whose state it refuses with a ModelFileError, is set aside.
        """
        indices = range(highest, lowest - 1, -1) if self.is_used else ()
        return any(
            self.fits.get(self.keys.fits[index], partial(self._restore, index, restore))
            for index in indices
        )

    def _restore(self, index: int, restore: Restore, folder: Path) -> bool:
        with reading_entry(SafetensorError):
            about = read_json(folder / "fit.json")
            figures = {**about["fit"], "window": self.windows[index]}
            fit = TypeAdapter(Fit).validate_python(figures)
            path = folder / STATE
            state = stored_tensors(path) if self.is_sharded else {**load_file(path)}
            self._compare(about["machine"], folder)
        try:
            restore(index, fit, state)
        except ModelFileError as error:
            raise UnreadableEntryError(str(error)) from None
        return True

    @in_phase("cache")
    def write_fit(self, index: int, fit: Fit, state: Mapping[str, AnyTensor]) -> None:
        """Start to cache a fit's checkpoint; the state must not change before `finish`.

        A collective if the state is sharded, which is written at once.
        """
        if not is_sharded(state):
            if self.is_used:
                self._writing = self._writer.submit(self._write_fit, index, fit, state)
        elif self.is_used:
            self._write_fit(index, fit, state)
        elif self.process.broadcast(value=False):
            send_rows(state)

    @in_phase("cache")
    def finish(self) -> None:
        """Wait until the last fit is written.

        Raises:
            OSError: it cannot be.
        """
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def _write_fit(self, index: int, fit: Fit, state: Mapping[str, AnyTensor]) -> None:
        """Write a checkpoint, and remove earlier ones as machine.keep_fits says.

        Fits written by a run with other evaluation settings stay: it may resume from them.
        """

        def write(folder: Path) -> None:
            if is_sharded(state):
                # The other processes wait in `write_fit` to learn whether to send their rows.
                self.process.broadcast(value=True)
            figures = {name: value for name, value in vars(fit).items() if name != "window"}
            about = {"machine": self.machine, "evaluation": self.evaluation}
            write_json(folder / "fit.json", {**about, "fit": figures})
            write_tensors(folder / STATE, state)

        is_written = self.fits.put(self.keys.fits[index], write)
        if is_sharded(state) and not is_written:
            self.process.broadcast(value=False)
        if self.config.keep_fits != "all":
            # All earlier fits: interrupted runs, or runs on a shorter log, may have left some.
            self.fits.remove(
                [
                    key
                    for earlier, key in enumerate(self.keys.fits[:index])
                    if not self._is_kept(earlier, index, self.config.keep_fits)
                    and self._is_own(key)
                ]
            )

    def _is_own(self, key: str) -> bool:
        """Whether this fit exists and was written by a run with the same evaluation settings."""
        path = self.fits.folder / key / "fit.json"
        try:
            own: bool = read_json(path)["evaluation"] == self.evaluation
        except (OSError, ValueError, KeyError):
            return False
        return own

    def _is_kept(self, index: int, newest: int, keep_fits: int) -> bool:
        """Whether a fit stays in the cache after that of windows[newest]."""
        if newest - index < keep_fits:
            return True
        if keep_fits == 1 or self.starts_afresh:  # no fit continues an older one
            return False
        return is_spaced(index, newest)

    @in_phase("cache")
    def read_evaluation(self, index: int, results: Path) -> EvaluatedWindow | None:
        """Return the cached evaluation of the model fitted on windows[index], if there is one.

        Its ranks, predictions and attention are linked into `results`.
        """
        window = self.windows[index + 1].name

        def read(folder: Path) -> EvaluatedWindow:
            with reading_entry():
                evaluated = EvaluatedWindow.read(folder, window)
                self._compare(read_json(folder / "machine.json"), folder)
            for name in TABLES:
                if (path := folder / name / f"{window}.parquet").exists():
                    link_or_copy(path, results / name / path.name)
            return evaluated

        return self.evaluations.get(self.evaluation_key(index), read) if self.is_used else None

    @in_phase("cache")
    def write_evaluation(self, index: int, evaluated: EvaluatedWindow) -> None:
        """Cache the evaluation of the model fitted on windows[index]."""
        if not self.is_used:
            return

        def write(folder: Path) -> None:
            evaluated.write(folder)
            write_json(folder / "machine.json", self.machine)

        self.evaluations.put(self.evaluation_key(index), write)

    def _compare(self, machine: Machine, folder: Path) -> None:
        """Warn once if an entry was written on another machine: its last bits may differ."""
        differences = [
            f"{name} {machine.get(name, MISSING)}, here {self.machine.get(name, MISSING)}"
            for name in sorted({*machine, *self.machine})
            if machine.get(name) != self.machine.get(name)
        ]
        if differences and not self._has_warned:
            _log.warning(
                "%s: written by another set-up (%s), so results agree, but not to the last bit; "
                "set machine.strict to true to fit again here",
                folder,
                "; ".join(differences),
            )
        self._has_warned |= bool(differences)


def is_spaced(index: int, newest: int) -> bool:
    """Whether `index` is one of about log2(newest) indices, which are sparser the older they are.

    Counted from 1, they are the last odd number, the last number divisible by 2 but not by 4, and
    so on. An index that is not among them is not among those of any greater `newest` either.
    """
    number = index + 1
    power = number & -number
    return newest - index < 2 * power


def _machine(process: Process, *, is_sharded: bool) -> Machine:
    device = process.device
    if device.type == "cuda":
        machine: dict[str, str | int] = {"device": torch.cuda.get_device_name(device)}
    else:
        about = torch.cpu.get_capabilities()
        instructions = [name for name, has in about.items() if has is True]
        machine = {
            "device": platform.machine(),
            "torch": package_version("torch"),
            "kernels": torch.backends.cpu.get_cpu_capability(),
            "threads": torch.get_num_threads(),
            "cpu": about.get("cpu_name", "unknown"),
            **{name: True for name in instructions if name.startswith(ARITHMETIC)},
            **{name: value for name, value in os.environ.items() if name in CPU_VARIABLES},
        }
    items = {"items": "sharded"} if is_sharded else {}
    return {**machine, **items, "processes": process.rank.world_size}
