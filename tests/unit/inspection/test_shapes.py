"""Logs in the layouts of well-known data sets: the file that is written gives a human's windows."""

import pyarrow as pa
import pytest

from dayahead.dataset.schema import load_dataset
from dayahead.download.stage import download
from dayahead.inspection.log import inspect_log
from dayahead.windows.session_ids import hashed_ids
from support.builders import (
    dataset_config,
    events,
    preprocessed,
    window_config,
)
from support.log_shapes import SHAPES
from support.session_windows import closed_windows, written_windows


def windows_of(path, folder, window):
    """Inspect a file, then run the first two stages with what was written."""
    (folder / "shop.yaml").write_text(inspect_log([str(path)], "shop").text)
    dataset = load_dataset("shop", folder)
    download(dataset, "shop", folder / "raw")
    return written_windows(preprocessed(folder, dataset, window))


def human_windows(shape, window):
    """The oracle's windows of the events as a human would set them up."""
    of_gaps = {"session_id": None, "user_id": "user_id"} if shape.gap_minutes else {}
    dataset = dataset_config(columns=of_gaps, gap_minutes=shape.gap_minutes)
    found = closed_windows(events(shape.events, item_type=pa.string()), dataset, window)
    if not shape.holds_user:
        return found
    return {
        name: dict(
            zip(hashed_ids(pa.array(sessions), 1).to_pylist(), sessions.values(), strict=True)
        )
        for name, sessions in found.items()
    }


@pytest.mark.long
@pytest.mark.parametrize("name", SHAPES)
def test_what_is_written_gives_the_windows_of_a_human(name, tmp_path, monkeypatch):
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    shape, window = SHAPES[name](tmp_path), window_config()
    found = windows_of(shape.path, tmp_path, window)
    as_text = {
        window: {session: [str(item) for item in items] for session, items in sessions.items()}
        for window, sessions in found.items()
    }
    expected = human_windows(shape, window)
    assert len(expected) == 5
    assert as_text == expected
