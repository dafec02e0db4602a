"""Fixtures of the unit tests: small logs preprocessed, an empty store; torch on one thread."""

import itertools
from copy import deepcopy
from functools import cache
from pathlib import Path

import dask
import pytest
import torch
from ruamel.yaml import YAML
from sqlalchemy import Engine, event

from dayahead.preprocess.stage import preprocess
from dayahead.preprocess.workers import workers
from dayahead.tracking.store import Store
from dayahead.windows.folder import WindowFolder
from support import user_packages
from support.builders import machine_config, preprocess_config, window_config, write_log

# Tiny tensors gain nothing from a second thread.
torch.set_num_threads(1)

install = user_packages.install
shop_models = user_packages.shop_models
project_module = user_packages.project_module


@event.listens_for(Engine, "connect")
def _without_waiting_for_the_disk(connection, _):
    """MLflow's and Optuna's databases outlive the tests' kills without it, if not a power cut."""
    connection.execute("PRAGMA synchronous = OFF")


@cache
def _parsed(text):
    return YAML(typ="safe", pure=True).load(text)


class _CachedYAML(YAML):
    def load(self, stream):
        return deepcopy(_parsed(stream.read()))


@pytest.fixture(scope="session", autouse=True)
def _settings_parsed_once():
    """Parse a text once: it takes a twentieth of a second, and many tests read the same."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dayahead.config.loading.YAML", _CachedYAML)
        yield


@pytest.fixture(autouse=True, scope="session")
def _threads_for_many_tasks():
    """Take threads also where a test has many small tasks: a cluster takes seconds to start."""

    def threads(*arguments, is_small):
        return workers(*arguments, is_small=True)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dayahead.preprocess.stage.workers", threads)
        yield


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Preprocess a table of events (or several, a source file each); open what was written.

    Runs share a cache only where they name its project.
    """
    numbers = itertools.count()

    def run(log, dataset, *, parts=1, log_end="2026-02-01", project=None, rebuild=False,
            fit_windows=1, scheduler=None, span=None, items=(), **window):  # fmt: skip
        root = tmp_path / str(next(numbers))
        monkeypatch.setenv("DVC_ROOT", str(tmp_path / project if project else root / "project"))
        write_log(root / "raw", log, parts=parts, log_end=log_end, span=span, items=items)
        config = preprocess_config(fit_windows=fit_windows, rebuild=rebuild)
        window = window_config(**window)
        with dask.config.set(scheduler_address=scheduler):
            preprocess(root / "raw", root / "windows", dataset, window, config, machine_config())
        return WindowFolder(root / "windows")

    return run


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An MLflow store without runs, which takes seconds to create."""
    folder = tmp_path_factory.mktemp("store")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        assert Store(folder).client.search_experiments()
    return folder / "mlflow.db"
