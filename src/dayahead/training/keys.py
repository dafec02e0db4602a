"""Names of what is kept of a run: hashes of all that a fit, or a measurement, depends on."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

from dayahead import columns, model, seeds
from dayahead.columns import ROLES, VALUE
from dayahead.data import batches, streaming
from dayahead.data import windows as window_files
from dayahead.data.windows import Window
from dayahead.evaluation import ranking, tables
from dayahead.files import fingerprint, sha256_of
from dayahead.training import (
    attention,
    learners,
    loading,
    measuring,
    optimiser,
    predictions,
    processes,
)
from dayahead.training import run as runs
from dayahead.training.run import Run

_FITS = (
    *(columns, seeds, batches, streaming, window_files),
    *(learners, loading, optimiser, processes, runs),
)
"""Modules that fit a model, beside the model room."""
_MEASURES = (measuring, predictions, attention, ranking, tables)
"""Modules that measure one."""
_PACKAGES = ("torch", "transformers", "numpy", "scipy", "pyarrow")
_NOT_OF_A_FIT = ("fit_last",)
_NOT_OF_RANKS = ("cutoffs",)


class Keys:
    """Keys over the windows of a run, each built on the one before.

    So a longer log begins with the keys of the shorter one, and whatever changes at a window
    changes the keys from there on.

    Args:
        run: of the main process.
        windows: that are fitted and measured, in order.
    """

    def __init__(self, run: Run, windows: Sequence[Window]) -> None:
        self.run = run
        self.windows = windows

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
        evaluation = self.run.study.evaluation
        window = self.windows[place + 1]
        roles = ROLES if evaluation.split == "all" else (evaluation.split,)
        value = {
            "model": self.fits[place],
            "window": window.name,
            "sessions": [sha256_of(self.run.store.path(window, role)) for role in roles],
            "evaluation": _without(asdict(evaluation), _NOT_OF_RANKS),
            "source": _source(_MEASURES),
        }
        return fingerprint(value)

    @property
    def _root(self) -> str:
        """What the first fit starts from."""
        study, process = self.run.study, self.run.process
        statistics = self.run.store.statistics
        given = study.model.pretrained_items
        value = {
            "model": asdict(study.model),
            "pretrained_items": sha256_of(Path(given)) if given else None,
            "task": asdict(study.task),
            "loss": asdict(study.loss),
            "training": _without(asdict(study.training), _NOT_OF_A_FIT),
            "features": {
                name: [statistics["features"][name][key] for key in ("kind", "columns")]
                for name in study.model.features
            },
            "sessions": statistics["sessions"],
            "device": process.device.type,
            "bfloat16": process.multiplies_bfloat16,
            "source": [*_source(_FITS), *map(sha256_of, _model_room())],
            "packages": {name: version(name) for name in _PACKAGES},
        }
        return fingerprint(value)

    def _values(self, column: str, begin: int, end: int) -> str:
        """Hash what a window adds to a vocabulary."""
        values = self.run.store.vocabulary(column)[VALUE].slice(begin, end - begin)
        return hashlib.sha256(repr(values.to_pylist()).encode()).hexdigest()


def _without(settings: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name not in names}


def _source(modules: Sequence[ModuleType]) -> list[str]:
    return [sha256_of(Path(str(module.__file__))) for module in modules]


def _model_room() -> list[Path]:
    return sorted(Path(str(model.__file__)).parent.glob("*.py"))
