"""What the machines of a run must have alike: settings, source, packages and the windows' files."""

import socket
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from dayahead.config.params import flat_settings
from dayahead.core.errors import ConfigError
from dayahead.core.fingerprints import sha256_of, source_fingerprint
from dayahead.distributed.process import Process
from dayahead.train.cache_keys import PACKAGES, ROOMS
from dayahead.train.run import Study

Facts = Mapping[str, object]
NONE = "missing"
N_TOLD = 5
"""Differences that a message names."""


def check_consistency(process: Process, study: Study) -> None:
    """Hold the copies of the project that the processes work in against each other.

    Every process calls this; one in each copy reads the files.

    Raises:
        ConfigError: something differs, in every process.
    """
    here = f"{socket.gethostname()}:{Path.cwd()}"
    places = process.all_gather(here)
    firsts = {place: places.index(place) for place in dict.fromkeys(places)}
    if len(firsts) == 1:
        return
    is_first = firsts[here] == process.rank.index
    told = process.all_gather(_facts(process, study) if is_first else {})
    faults = [
        fault
        for place, rank in firsts.items()
        for fault in _differences(told[0], told[rank], places[0], place)
    ]
    if faults:
        more = f" and {len(faults) - N_TOLD} more" if len(faults) > N_TOLD else ""
        raise ConfigError(
            f"the processes of this run do not work with the same: {'; '.join(faults[:N_TOLD])}"
            f"{more}; bring all copies to the same state, or share one, and run again"
        )


def _differences(main: Facts, other: Facts, main_place: str, place: str) -> list[str]:
    return [
        f"{name} is {main.get(name, NONE)} in {main_place}, {other.get(name, NONE)} in {place}"
        for name in dict.fromkeys([*main, *other])
        if main.get(name, NONE) != other.get(name, NONE)
    ]


def _facts(process: Process, study: Study) -> Facts:
    windows = sorted(path for path in study.windows.rglob("*") if path.is_file())
    given = study.params.model.pretrained_items
    files = [*windows, *([Path(given)] if given else [])]
    return {
        **flat_settings(study.params),
        "the source in src": source_fingerprint(*ROOMS)[:12],
        **{f"the version of {name}": version(name) for name in PACKAGES},
        "whether bfloat16 is fast": process.multiplies_bfloat16,
        **{str(path): sha256_of(path)[:12] for path in files if path.is_file()},
    }
