"""Names of what is kept of a run: hashes of all that a fit, or a measurement, depends on."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

from dayahead.core.columns import ITEM_ID, ROLES, VALUE
from dayahead.core.fingerprints import fingerprint, sha256_of
from dayahead.train.run import Run
from dayahead.train.trainers import uses_bfloat16
from dayahead.windows.folder import Window

Machine = Mapping[str, str | int]
"""What decides the last bit of a sum, beside settings, source and packages."""
SOURCES = (
    *("columns.py", "files.py", "seeds.py", "config/params.py", "config/training.py"),
    *("data/batches.py", "data/streaming.py", "data/windows.py"),
    *("evaluation/metrics.py", "evaluation/ranking.py", "evaluation/tables.py"),
    *("model/*.py", "training/*.py"),
)
"""What fits and measures, and what writes it down, below src/dayahead."""
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
        evaluation = self.run.study.evaluation
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
        study, process = self.run.study, self.run.process
        statistics = self.run.store.statistics
        given = None if study.model.is_counted else study.model.pretrained_items
        # Every process draws its own dropout.
        n_streams = process.share.world if study.model.has_dropout else None
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
            "bfloat16": uses_bfloat16(study.training, process),
            "dropout": n_streams,
            "machine": self.machine,
            "source": source_hashes(),
            "packages": {name: version(name) for name in PACKAGES},
        }
        return fingerprint(value)

    def _values(self, column: str, begin: int, end: int) -> str:
        """Hash what a window adds to a vocabulary."""
        values = self.run.store.vocabulary(column)[VALUE].slice(begin, end - begin)
        return hashlib.sha256(repr(values.to_pylist()).encode()).hexdigest()


def _without(settings: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name not in names}


def source_hashes() -> list[str]:
    """Of all that fits and measures, and writes it down."""
    package = Path(__file__).parents[1]
    return [sha256_of(path) for pattern in SOURCES for path in sorted(package.glob(pattern))]
