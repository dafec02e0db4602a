"""The keys under which fits and evaluations are cached."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dayahead.config.baselines import is_plugin_baseline
from dayahead.config.effective_settings import effective_settings
from dayahead.config.params import Params
from dayahead.core.columns import ITEM_ID, ROLES, VALUE
from dayahead.core.fingerprints import fingerprint, package_version, sha256_of, source_fingerprint
from dayahead.core.plugins import Kind, plugin_sources
from dayahead.distributed.process import Process
from dayahead.train.catalogue import Catalogue
from dayahead.train.event_types import EventTypes
from dayahead.windows.folder import Window
from dayahead.windows.metadata import has_vector

Machine = Mapping[str, str | int]
"""What affects floating-point rounding, besides settings, source and packages."""
ROOMS = (
    *("config", "core", "distributed", "memory", "metrics", "model", "outputs", "train"),
    "windows",
)
"""Rooms whose source affects a fit or an evaluation."""
PACKAGES = (*("torch", "transformers", "safetensors", "numpy", "scipy", "numba", "pyarrow"),)


class CacheKeys:
    """Keys of a run's fits and evaluations, each built on the key of the window before.

    A longer log therefore starts with the keys of the shorter one, and a change at a window changes
    all keys from there on. `machine` is part of every key, if given. No model is built.
    """

    def __init__(
        self,
        params: Params,
        catalogue: Catalogue,
        windows: Sequence[Window],
        process: Process,
        machine: Machine | None,
    ) -> None:
        self.params = params
        self.folder = catalogue.folder
        self.catalogue = catalogue
        self.windows = windows
        self.process = process
        self.machine = machine

    @cached_property
    def fits(self) -> tuple[str, ...]:
        """Names of the windows' checkpoints: keys of the state after the fit of each."""
        keys: list[str] = []
        known = dict.fromkeys(self.catalogue.columns, 0)
        before: Window | None = None
        for window in self.windows:
            sizes = self.catalogue.sizes_at(window)
            value = {
                "before": keys[-1] if keys else self._root,
                "window": window.name,
                "sessions": sha256_of(self.folder.path(window, "train")),
                "sizes": sizes,
                "values": {name: self._values(name, known[name], n) for name, n in sizes.items()},
                "items": self._items(before, window),
            }
            keys.append(fingerprint(value))
            known, before = sizes, window
        return tuple(keys)

    def evaluation(self, index: int) -> str:
        """Key of the evaluation, on windows[index + 1], of the model fitted on windows[index]."""
        window, settings = self.windows[index + 1], self.evaluation_settings
        start = self.catalogue.sizes_at(self.windows[index])[ITEM_ID]
        end = max(start, self.folder.n_in_files(ITEM_ID, window))
        split = self.params.evaluation.split
        paths = [self.folder.path(window, role) for role in (ROLES if split == "all" else [split])]
        # A model with ticks counts the train sessions of the window during the evaluation.
        counted = [self.folder.path(window, "train")] if self.params.has_ticks else []
        value = {
            "model": self.fits[index],
            "targets": self._events["targets"],
            "window": window.name,
            "sessions": [sha256_of(path) for path in paths],
            "counted": [sha256_of(path) for path in counted],
            "evaluation": settings,
            # Lists of predictions contain raw ids, also of items that are new in this window.
            "values": self._values(ITEM_ID, start, end) if settings["predictions"] else None,
        }
        return fingerprint(value)

    @cached_property
    def evaluation_settings(self) -> dict[str, Any]:
        """Settings that evaluations depend on; metrics at any cutoff follow from cached ranks."""
        settings = asdict(self.params.evaluation)
        for without_effect in ("cutoffs", "metrics"):
            del settings[without_effect]
        return settings

    @cached_property
    def _events(self) -> Mapping[str, Any]:
        """What events count for by the index of their type, by the settings that say so."""
        return EventTypes.of(self.folder, self.params.events).fingerprint()

    @cached_property
    def _root(self) -> str:
        """Fingerprint of what the first fit starts from."""
        params, process = self.params, self.process
        statistics = self.folder.statistics
        has_network = params.model.has_network
        pretrained = params.model.pretrained_items if has_network else None
        effective = effective_settings(params)
        value = {
            **effective,
            "events": {name: self._events[name] for name in effective["events"]},
            "pretrained_items": self._vectors(pretrained) if pretrained else None,
            "features": {
                name: [statistics.features[name].kind, statistics.features[name].columns]
                for name in params.model.features
            },
            "sessions": asdict(statistics.sessions),
            "items": None if statistics.items is None else asdict(statistics.items),
            "new_items": params.evaluation.ranks_new_items if statistics.items else None,
            "device": process.device.type,
            "bfloat16": has_network and process.uses_bfloat16(params.training.precision),
            # Every process has its own random stream for dropout.
            "dropout": process.rank.world_size if params.model.has_dropout else None,
            "machine": self.machine,
            "source": source_fingerprint(*ROOMS),
            "plugins": plugin_sources(_chosen(params)),
            "packages": {name: self._version(name) for name in PACKAGES},
        }
        return fingerprint(value)

    def _version(self, package: str) -> str:
        """Return a package's version; on a CPU without its build, which is a fact of the machine.

        Fits of torch's +cpu and +cu130 on CPUs agree as fits of two types of CPU do.
        """
        version = package_version(package)
        return version.partition("+")[0] if self.process.device.type == "cpu" else version

    def _vectors(self, name: str) -> str | None:
        """Hash pretrained vectors, unless they are among the items of each window."""
        listed = self.folder.first_items
        if listed is None or not has_vector(self.folder.statistics, name):
            return sha256_of(Path(name))
        # With the full catalogue the first fit holds items of later windows, too.
        return _hash_of(listed.rows) if self.params.model.catalogue == "full" else None

    def _items(self, before: Window | None, window: Window) -> str | None:
        """Hash what the items table says after a window and not after the one before."""
        rows = self.folder.items_between(before, window)
        return None if rows is None else _hash_of(rows)

    def _values(self, column: str, start: int, end: int) -> str:
        """Hash the values that a window adds to a vocabulary."""
        values = self.folder.vocabulary(column)[VALUE].slice(start, end - start)
        return hashlib.sha256(repr(values.to_pylist()).encode()).hexdigest()


def _hash_of(table: pa.Table) -> str:
    with pa.BufferOutputStream() as stream:
        pq.write_table(table, stream)
        return hashlib.sha256(stream.getvalue()).hexdigest()


def _chosen(params: Params) -> list[tuple[Kind, str]]:
    """Return the settings that may name a plug-in of another package."""
    network, loss = params.model.of_network().architecture, params.loss.name
    of_network: list[tuple[Kind, str]] = [("backbone", network), ("loss", loss)]
    if params.model.has_network:
        return of_network
    name = params.model.architecture
    return [("baseline", name)] if is_plugin_baseline(name) else []
