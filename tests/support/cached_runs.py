"""Runs with a cache beside their output, which is empty at the start as under DVC."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dayahead.train.stage import train
from support.outputs import without_times
from support.tiny_settings import tiny_study
from support.window_folders import bytes_in, markov_days

DAYS = markov_days(n_days=5, sessions_per_day=12, n_items=25)
KEEP_ALL = {"machine": {"keep_fits": "all"}}


def run(
    windows: Path, out: Path, sections: Mapping[str, Mapping[str, Any]] | None = None, **more: Any
) -> dict[str, bytes]:
    """Train with a cache beside `out`; return the output files."""
    shutil.rmtree(out, ignore_errors=True)
    train(tiny_study(windows, out, sections, cache=out.with_name("cache"), **more))
    return without_times(bytes_in(out))
