"""Settings and folders of a run of the protocol."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dayahead.config.params import Params
from dayahead.core.project import cache_root

WindowRecord = Mapping[str, Any]
"""An evaluated window: `step` (its position among the kept windows), `timestamp_ms` (its start) and
`metrics` by name, None where there is no value."""
OnWindow = Callable[[WindowRecord], None]
"""Called in the main process with every evaluated window, for MLflow; it must pickle."""


@dataclass(frozen=True, kw_only=True)
class Study:
    """Settings of a run of the protocol, and its folders: by default those of dvc.yaml."""

    params: Params
    windows: Path = Path("data/windows")
    results: Path = Path("results")
    models: Path = Path("models")
    cache: Path = field(default_factory=cache_root)
    """Holds finished fits and evaluations, so that no run repeats them."""
    phases: Path | None = None
    """File in which a main process other than the stage's leaves the table of its phases."""
