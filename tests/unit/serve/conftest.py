"""Models fitted on one small window, each once in a session of tests."""

from contextlib import ExitStack
from functools import cache

import pytest
from starlette.testclient import TestClient

from dayahead.serve.http import create_app
from dayahead.serve.limits import Limits
from dayahead.serve.model_source import ModelSource
from dayahead.serve.recommender import Recommender
from dayahead.serve.service import Service
from support.tiny_settings import train_study
from support.window_folders import markov_days, write_window_folder

MAX_LENGTH = 6
DAYS = [
    [session[:MAX_LENGTH] for session in sessions]
    for sessions in markov_days(n_days=2, sessions_per_day=20, n_items=15)
]
DAYS[0] += [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11], [12, 13, 14, 3]]
"""The first day has all of the 15 items."""


@pytest.fixture(scope="session")
def saved_model(tmp_path_factory):
    """Folder of a model of an architecture, a task, features and other settings of `model`."""

    @cache
    def fit(architecture="gpt2", task="clm", features=(), **model):
        folder = tmp_path_factory.mktemp(architecture)
        windows = write_window_folder(
            folder / "windows", DAYS, max_length=MAX_LENGTH, features=bool(features)
        )
        sections = {
            "model": {"architecture": architecture, "features": features, **model},
            "task": {"name": task},
            "training": {"fit_last": False},
        }
        train_study(windows, folder, sections)
        return folder / "models"

    return fit


@pytest.fixture(scope="session")
def load(saved_model):
    """Recommender of such a model."""
    return cache(lambda *names, **model: Recommender.load(saved_model(*names, **model)))


@pytest.fixture
def serve(saved_model):
    """Open a client of a service of such a model, with some limits; it is closed at the end."""
    with ExitStack() as stack:

        def open_client(*names, cold_start="popularity", **limits):
            source = ModelSource(saved_model(*names))
            service = Service(source, cold_start, 1000, Limits(**limits))
            return stack.enter_context(TestClient(create_app(service)))

        yield open_client
