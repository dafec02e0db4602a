"""The event log into window files: what the store holds linked out, and the rest built."""

import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dayahead.config.params import MachineConfig, PreprocessConfig, WindowConfig
from dayahead.core.store import DamagedBlobError
from dayahead.dataset.schema import DatasetConfig
from dayahead.preprocess.build import Build, LateRowsError
from dayahead.preprocess.dask_cluster import device_of
from dayahead.preprocess.event_log import read_event_log
from dayahead.preprocess.incremental import State, States, settings_key

_log = logging.getLogger(__name__)


def preprocess(
    raw: Path,
    folder: Path,
    dataset: DatasetConfig,
    window: WindowConfig,
    config: PreprocessConfig,
    machine: MachineConfig,
) -> None:
    """Write the folder of windows anew, whole or not at all.

    Where the store holds a run over some parts of this log, its windows are linked out, and only
    the other parts are read.

    Args:
        raw: the event table, as `download` left it.
        folder: what is there is replaced at the end.
        dataset: what the events mean and what a session is.
        window: unit, zone and rules of the windows.
        config: device, windows to fit on, what becomes of late rows.
        machine: the Dask cluster.

    Raises:
        ConfigError: a setting that cannot be met (zone, scheduler, device, fit_windows).
        DataError: no readable event table, no window that stands, or rows that came too late.
    """
    log = read_event_log(raw, dataset)
    device = device_of(config)
    states = States(settings_key(dataset, window, config.fit_windows, device, log))
    build = Build(log, dataset, window, config, machine, device)
    for state in states.fitting(log):
        try:
            _written(build, states, state, folder)
        except DamagedBlobError as error:
            _log.warning("preprocess: the store is damaged: %s. Done again", error)
            states.forget(state)
        except LateRowsError as error:
            if not config.rebuild:
                raise
            _log.warning("preprocess: %s Written anew, for preprocess.rebuild is true", error)
        else:
            return
    _written(build, states, None, folder)


def _written(build: Build, states: States, state: State | None, folder: Path) -> None:
    with _built_beside(folder.absolute()) as (output, scratch):
        earlier = None
        if state is not None:
            earlier = states.restored(state, build.log, output, scratch)
            n_windows = len(list(output.glob("session_start_*-train.parquet")))
            _log.info("preprocess: %d windows out of the store", n_windows)
            if earlier.is_of(build.log):
                return
        left = build.windows(output, scratch, earlier)
        states.keep(left, build.log, output, earlier)


@contextmanager
def _built_beside(folder: Path) -> Iterator[tuple[Path, Path]]:
    """Give folders for output and scratch; on success the output takes the place of `folder`."""
    building = folder.with_name(f".{folder.name}.building")
    shutil.rmtree(building, ignore_errors=True)  # what a killed run left
    # Workers of a cluster that was there before us stand in folders of their own: whole paths.
    output, scratch = building / "windows", building / "scratch"
    output.mkdir(parents=True)
    scratch.mkdir()
    try:
        yield output, scratch
        if folder.exists():
            folder.rename(building / "replaced")
        output.rename(folder)
    finally:
        shutil.rmtree(building, ignore_errors=True)
