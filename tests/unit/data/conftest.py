"""What the tests of preprocessing share."""

import itertools

import pytest

from builders import preprocess_config, window_config, write_log
from dayahead.data.preprocessing import preprocess
from dayahead.data.windows import WindowStore


@pytest.fixture
def run(tmp_path, dask_address):
    """Preprocess a table of events and open what was written."""
    numbers = itertools.count()

    def run(table, dataset, *, parts=1, log_end="2026-02-01", fit_windows=1, **window):
        root = tmp_path / str(next(numbers))
        write_log(root / "raw", table, parts=parts, log_end=log_end)
        config = preprocess_config(scheduler=dask_address, fit_windows=fit_windows)
        preprocess(root / "raw", root / "windows", dataset, window_config(**window), config)
        return WindowStore(root / "windows")

    return run
