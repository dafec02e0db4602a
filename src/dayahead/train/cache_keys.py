"""Names of what is kept of a run: hashes of all that a fit, or a measurement, depends on."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

from dayahead.core.columns import ITEM_ID, ROLES, VALUE
from dayahead.core.fingerprints import fingerprint, sha256_of, source_fingerprint
from dayahead.train.run import Run
from dayahead.train.trainers import uses_bfloat16
from dayahead.windows.folder import Window

Machine = Mapping[str, str | int]
"""What decides the last bit of a sum, beside settings, source and packages."""
ROOMS = ("config", "core", "distributed", "metrics", "model", "train", "windows")
"""Whose source fits and evaluates, and writes the results."""
PACKAGES = (
    *("torch", "transformers", "safetensors", "numpy", "scipy", "pyarrow"),
    *("dask", "merlin-core", "merlin-dataloader"),
)
_NOT_OF_A_FIT = ("fit_last",)
_NOT_OF_RANKS = ("cutoffs",)


class Keys:
    """Keys over the windows of a run, each built on the one before.

    So a longer log begins with the keys of the shorter one, and whatever changes at a window
    changes the keys from there on.

    Args:
        run: of the main process.
        windows: that are fitted and measured, in order.
        machine: that all must come from; none where that of another will do.
    """

    def __init__(self, run: Run, windows: Sequence[Window], machine: Machine | None) -> None:
        self.run = run
        self.windows = windows
        self.machine = machine

    @cached_property
    def fits(self) -> tuple[str, ...]:
        """For each window: of the model as it stands after that window's fit."""
        keys: list[str] = []
        held = dict.fromkeys(self.run.columns, 0)
        for window in self.windows:
            sizes = self.run.sizes_at(window)
            value = {
                "before": keys[-1] if keys else self._root,
                "window": window.name,
                "sessions": sha256_of(self.run.store.path(window, "train")),
                "sizes": sizes,
                "values": {name: self._values(name, held[name], n) for name, n in sizes.items()},
            }
            keys.append(fingerprint(value))
            held = sizes
        return tuple(keys)

    def measured(self, place: int) -> str:
        """Key of what the model fitted at windows[place] came to on the window after it."""
        evaluation = self.run.params.evaluation
        window = self.windows[place + 1]
        held, known = (self.run.sizes_at(at)[ITEM_ID] for at in self.windows[place : place + 2])
        roles = ROLES if evaluation.split == "all" else (evaluation.split,)
        value = {
            "model": self.fits[place],
            "window": window.name,
            "sessions": [sha256_of(self.run.store.path(window, role)) for role in roles],
            "evaluation": _without(asdict(evaluation), _NOT_OF_RANKS),
            # Lists of predictions name items that came up in this very window.
            "values": self._values(ITEM_ID, held, known) if evaluation.predictions else None,
        }
        return fingerprint(value)

    @property
    def _root(self) -> str:
        """What the first fit starts from."""
        params, process = self.run.params, self.run.process
        statistics = self.run.store.statistics
        given = None if params.model.is_counted else params.model.pretrained_items
        # Every process draws its own dropout.
        n_streams = process.rank.world_size if params.model.has_dropout else None
        value = {
            "model": asdict(params.model),
            "pretrained_items": sha256_of(Path(given)) if given else None,
            "task": asdict(params.task),
            "loss": asdict(params.loss),
            "training": _without(asdict(params.training), _NOT_OF_A_FIT),
            "features": {
                name: [statistics.features[name].kind, statistics.features[name].columns]
                for name in params.model.features
            },
            "sessions": asdict(statistics.sessions),
            "device": process.device.type,
            "bfloat16": uses_bfloat16(params.training, process),
            "dropout": n_streams,
            "machine": self.machine,
            "source": source_fingerprint(*ROOMS),
            "packages": {name: version(name) for name in PACKAGES},
        }
        return fingerprint(value)

    def _values(self, column: str, begin: int, end: int) -> str:
        """Hash what a window adds to a vocabulary."""
        values = self.run.store.vocabulary(column)[VALUE].slice(begin, end - begin)
        return hashlib.sha256(repr(values.to_pylist()).encode()).hexdigest()


def _without(settings: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name not in names}
