"""Cached fits and evaluations of windows, and the keys that name all they depend on."""

import hashlib
import logging
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, replace
from functools import cache, cached_property, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from dayahead.config.params import Params
from dayahead.core.cache import Cache, UnreadableEntryError, link_or_copy, reading_entry
from dayahead.core.columns import ITEM_ID, ROLES, VALUE
from dayahead.core.errors import ModelFileError
from dayahead.core.files import read_json, write_json
from dayahead.core.fingerprints import fingerprint, sha256_of, source_fingerprint
from dayahead.core.phases import in_phase
from dayahead.core.plugins import Kind, plugin_sources
from dayahead.model.tensor_files import (
    AnyTensor,
    StoredTensor,
    is_sharded,
    send_rows,
    stored_tensors,
    write_tensors,
)
from dayahead.train.effective_settings import effective_settings
from dayahead.train.loss_curve import curve_of
from dayahead.train.results import TABLES, EvaluatedWindow
from dayahead.train.run import Fit, Run
from dayahead.train.trainers import uses_bfloat16
from dayahead.windows.folder import Window

Machine = Mapping[str, str | int]
"""What affects floating-point rounding, besides settings, source and packages."""
ROOMS = ("config", "core", "distributed", "memory", "metrics", "model", "train", "windows")
"""Rooms whose source shapes a fit or an evaluation."""
PACKAGES = (
    *("torch", "transformers", "safetensors", "numpy", "scipy", "numba", "pyarrow"),
    *("dask", "merlin-core", "merlin-dataloader"),
)
CPU_VARIABLES = (
    *("ATEN_CPU_CAPABILITY", "MKL_CBWR", "MKL_DEBUG_CPU_TYPE", "MKL_ENABLE_INSTRUCTIONS"),
    *("DNNL_MAX_CPU_ISA", "ONEDNN_MAX_CPU_ISA", "ONEDNN_DEFAULT_FPMATH_MODE"),
)
"""Environment variables that choose the instructions of torch, MKL and oneDNN."""
ARITHMETIC = ("avx", "amx", "fma", "f16c", "asimd", "neon", "sve", "sme", "bf16", "fp16", "i8mm")
"""How the names of these instructions begin in `torch.cpu.get_capabilities`."""
MISSING = "missing"
STATE = "state.safetensors"
Restore = Callable[[int, Fit, Mapping[str, Tensor | StoredTensor]], None]
_log = logging.getLogger(__name__)


class CacheKeys:
    """Keys of a run's fits and evaluations, each built on the key of the window before.

    So a longer log begins with the keys of the shorter one, and whatever changes at a window
    changes the keys from there on. `machine` is part of every key, if given.
    """

    def __init__(self, run: Run, windows: Sequence[Window], machine: Machine | None) -> None:
        self.run = run
        self.windows = windows
        self.machine = machine

    @cached_property
    def fits(self) -> tuple[str, ...]:
        """Names of the windows' checkpoints: keys of the state after the fit of each."""
        keys: list[str] = []
        known = dict.fromkeys(self.run.columns, 0)
        for window in self.windows:
            sizes = self.run.sizes_at(window)
            value = {
                "before": keys[-1] if keys else self._root,
                "window": window.name,
                "sessions": sha256_of(self.run.folder.path(window, "train")),
                "sizes": sizes,
                "values": {name: self._values(name, known[name], n) for name, n in sizes.items()},
            }
            keys.append(fingerprint(value))
            known = sizes
        return tuple(keys)

    def evaluation(self, index: int) -> str:
        """Key of the evaluation, on windows[index + 1], of the model fitted on windows[index]."""
        window = self.windows[index + 1]
        start = self.run.sizes_at(self.windows[index])[ITEM_ID]
        end = max(start, self.run.folder.n_in_files(ITEM_ID, window))
        settings = self.evaluation_settings
        roles = ROLES if settings["split"] == "all" else (settings["split"],)
        value = {
            "model": self.fits[index],
            "window": window.name,
            "sessions": [sha256_of(self.run.folder.path(window, role)) for role in roles],
            "evaluation": settings,
            # Lists of predictions name items that are new in this window or in its grace.
            "values": self._values(ITEM_ID, start, end) if settings["predictions"] else None,
        }
        return fingerprint(value)

    @cached_property
    def evaluation_settings(self) -> dict[str, Any]:
        """Settings that evaluations depend on; metrics at any cutoff follow from cached ranks."""
        settings = asdict(self.run.params.evaluation)
        del settings["cutoffs"]
        return settings

    @cached_property
    def _root(self) -> str:
        """Fingerprint of what the first fit starts from."""
        params, process = self.run.params, self.run.process
        statistics = self.run.folder.statistics
        has_network = params.model.has_network
        pretrained = params.model.pretrained_items if has_network else None
        value = {
            **effective_settings(params),
            "pretrained_items": sha256_of(Path(pretrained)) if pretrained else None,
            "features": {
                name: [statistics.features[name].kind, statistics.features[name].columns]
                for name in params.model.features
            },
            "sessions": asdict(statistics.sessions),
            "device": process.device.type,
            "bfloat16": has_network and uses_bfloat16(params.training, process),
            # Every process has its own random stream for dropout.
            "dropout": process.rank.world_size if params.model.has_dropout else None,
            "machine": self.machine,
            "source": source_fingerprint(*ROOMS),
            "plugins": plugin_sources(_chosen(params)),
            "packages": {name: version(name) for name in PACKAGES},
        }
        return fingerprint(value)

    def _values(self, column: str, start: int, end: int) -> str:
        """Hash what a window adds to a vocabulary."""
        values = self.run.folder.vocabulary(column)[VALUE].slice(start, end - start)
        return hashlib.sha256(repr(values.to_pylist()).encode()).hexdigest()


class CachedWindows:
    """Fits and evaluations of a run in the cache; as a context manager it ends with `finish`.

    Only the main process reads and writes: on others nothing is found and nothing is written.
    """

    def __init__(self, folder: Path, run: Run, windows: Sequence[Window]) -> None:
        self.fits = Cache(folder / "fits")
        self.evaluations = Cache(folder / "evaluations")
        self.windows = windows
        self.config = run.params.machine
        self.process = run.process
        self.is_used = run.process.is_main
        self.shard = run.shard
        self.machine = _machine(run)
        self.keys = CacheKeys(run, windows, self.machine if self.config.strict else None)
        self.evaluation = fingerprint(self.keys.evaluation_settings)
        self.evaluation_key = cache(self.keys.evaluation)  # which hashes the window's files
        self.starts_afresh = run.params.training.starts_afresh
        self._has_warned = False
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
            fit = _fit_of(self.windows[index], about["fit"])
            path = folder / STATE
            state = {**load_file(path)} if self.shard.is_whole else stored_tensors(path)
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
        """Write a checkpoint, and remove those before it that machine.keep_fits drops.

        Fits of a run that evaluates otherwise stay: it may resume from them.
        """

        def write(folder: Path) -> None:
            if is_sharded(state):
                self.process.broadcast(value=True)
            figures = {name: value for name, value in vars(fit).items() if name != "window"}
            about = {"machine": self.machine, "evaluation": self.evaluation}
            write_json(folder / "fit.json", {**about, "fit": figures})
            write_tensors(folder / STATE, state)

        is_written = self.fits.put(self.keys.fits[index], write)
        if is_sharded(state) and not is_written:
            self.process.broadcast(value=False)
        if self.config.keep_fits != "all":
            # Earlier runs have written some of them: interrupted ones, and those of a shorter log.
            self.fits.remove(
                [
                    key
                    for earlier, key in enumerate(self.keys.fits[:index])
                    if not self._is_kept(earlier, index, self.config.keep_fits)
                    and self._is_own(key)
                ]
            )

    def _is_own(self, key: str) -> bool:
        """Whether there is a fit of this name, written by a run that evaluates as this one does."""
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
        if keep_fits == 1 or self.starts_afresh:  # where no fit is made from an older one
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
        """Warn once where an entry comes from another machine: its last bits may differ."""
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


def _fit_of(window: Window, figures: dict[str, Any]) -> Fit:
    fit = TypeAdapter(Fit).validate_python({**figures, "window": window})
    return replace(fit, curve=curve_of(fit.curve))


def is_spaced(index: int, newest: int) -> bool:
    """Whether `index` is one of about log2(newest) indices, the fewer the older.

    Counted from 1, those are the last odd number, the last that 2 divides but not 4, and so on. So
    one that is left out now is left out for every greater `newest`, too.
    """
    number = index + 1
    power = number & -number
    return newest - index < 2 * power


def _chosen(params: Params) -> list[tuple[Kind, str]]:
    """Return what another package may have been asked for."""
    network, loss = params.model.of_network().architecture, params.loss.name
    of_network: list[tuple[Kind, str]] = [("backbone", network), ("loss", loss)]
    return of_network if params.model.has_network else [("baseline", params.model.architecture)]


def _cpu() -> Machine:
    """Name of the CPU, and its instructions that arithmetic may use."""
    about = torch.cpu.get_capabilities()
    instructions = (name for name, has in about.items() if has is True)
    return {
        "cpu": about.get("cpu_name", "unknown"),
        **{name: True for name in instructions if name.startswith(ARITHMETIC)},
    }


def _machine(run: Run) -> Machine:
    device = run.process.device
    if device.type == "cuda":
        machine: dict[str, str | int] = {"device": torch.cuda.get_device_name(device)}
    else:
        machine = {
            "device": platform.machine(),
            "kernels": torch.backends.cpu.get_cpu_capability(),
            "threads": torch.get_num_threads(),
            **_cpu(),
            **{name: value for name, value in os.environ.items() if name in CPU_VARIABLES},
        }
    items = {} if run.shard.is_whole else {"items": "sharded"}
    return {**machine, **items, "processes": run.process.rank.world_size}
