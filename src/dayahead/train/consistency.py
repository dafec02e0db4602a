"""Check that all machines of a run have the same settings, source, packages and window files."""

import socket
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from dayahead.config.params import flat_settings
from dayahead.core.errors import ConfigError
from dayahead.core.fingerprints import sha256_of, source_fingerprint
from dayahead.distributed.process import Process
from dayahead.train.cached_windows import PACKAGES, ROOMS
from dayahead.train.run import Study

Facts = Mapping[str, object]
MISSING = "missing"
N_REPORTED = 5
"""Differences that the message lists."""


def check_consistency(process: Process, study: Study) -> None:
    """Compare the copies of the project that the processes of a run work in; a collective.

    One process of each copy reads its files.

    Raises:
        ConfigError: the copies differ; raised in every process.
    """
    own_copy = f"{socket.gethostname()}:{Path.cwd()}"
    copies = process.all_gather(own_copy)
    readers = {copy: copies.index(copy) for copy in dict.fromkeys(copies)}
    if len(readers) == 1:
        return
    is_reader = readers[own_copy] == process.rank.index
    facts = process.all_gather(_facts(process, study) if is_reader else {})
    differences = [
        difference
        for copy, rank in readers.items()
        for difference in _differences(facts[0], facts[rank], copies[0], copy)
    ]
    if differences:
        n_more = len(differences) - N_REPORTED
        more = f" and {n_more} more" if n_more > 0 else ""
        raise ConfigError(
            f"the processes of this run work on different copies of the project: "
            f"{'; '.join(differences[:N_REPORTED])}{more}; synchronise the copies, or share one, "
            f"and run again"
        )


def _differences(main: Facts, other: Facts, main_copy: str, copy: str) -> list[str]:
    return [
        f"{name} is {main.get(name, MISSING)} in {main_copy}, {other.get(name, MISSING)} in {copy}"
        for name in dict.fromkeys([*main, *other])
        if main.get(name, MISSING) != other.get(name, MISSING)
    ]


def _facts(process: Process, study: Study) -> Facts:
    """Everything that must be the same on all machines, by its name in messages."""
    files = sorted(study.windows.rglob("*"))
    if study.params.model.pretrained_items:
        files.append(Path(study.params.model.pretrained_items))
    return {
        **flat_settings(study.params),
        "the source in src": source_fingerprint(*ROOMS)[:12],
        **{f"the version of {name}": version(name) for name in PACKAGES},
        "whether bfloat16 is fast": process.multiplies_bfloat16,
        **{str(path): sha256_of(path)[:12] for path in files if path.is_file()},
    }
