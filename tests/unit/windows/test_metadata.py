"""windows.json and statistics.json: what is written is read again; damaged files are named."""

import json
import math
from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dayahead.core.errors import WindowError
from dayahead.core.files import read_json, write_json
from dayahead.windows.folder import MANIFEST, STATISTICS, WindowFolder
from dayahead.windows.metadata import (
    FeatureStatistics,
    NumberStatistics,
    Statistics,
    WindowsManifest,
    read_metadata,
)
from support.window_folders import tiny_statistics, write_window_folder

STATISTICS_JSON = """\
{
  "unit": "day",
  "length": 1,
  "timezone": "UTC",
  "item_type": "int",
  "sessions": {
    "repeats": "keep",
    "min_length": 2,
    "max_length": 20,
    "truncate": "first",
    "past_max_length": 0
  },
  "fitted_on": [
    "2026-01-01"
  ],
  "features": {
    "category": {
      "kind": "categorical",
      "columns": [
        "category"
      ],
      "type": "int"
    },
    "price": {
      "kind": "log_number",
      "columns": [
        "price"
      ],
      "mean": 1.0,
      "std": 0.5
    }
  }
}
"""


@pytest.fixture
def folder(tmp_path):
    return write_window_folder(tmp_path / "windows", [[[1, 2], [2, 3]], [[3, 1]]], features=True)


def test_statistics_json_has_this_layout(folder):
    assert (folder / STATISTICS).read_text() == STATISTICS_JSON


def test_files_read_and_written_again_keep_their_bytes(folder, tmp_path):
    manifest = read_metadata(WindowsManifest, folder / MANIFEST)
    write_json(tmp_path / MANIFEST, asdict(manifest))
    statistics = read_metadata(Statistics, folder / STATISTICS)
    write_json(tmp_path / STATISTICS, statistics.as_json())
    for name in (MANIFEST, STATISTICS):
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()


numbers = st.floats(allow_nan=False, allow_infinity=False)


@given(
    st.lists(numbers, max_size=5),
    st.lists(st.integers(-(2**63), 2**63 - 1) | st.text(), max_size=5),
    st.none() | numbers,
)
def test_every_number_and_value_is_read_back_exactly(tmp_path_factory, knots, values, mean):
    number = NumberStatistics(knots=knots, n=len(knots), values=values, mean=mean)
    path = tmp_path_factory.getbasetemp() / "any-statistics.json"
    feature = FeatureStatistics(kind="number", columns=["x"], windows={"2026-01-01": number})
    written = tiny_statistics()
    written.features.update(x=feature)
    write_json(path, written.as_json())
    read = read_metadata(Statistics, path)
    assert read == written
    signs = [math.copysign(1, knot) for knot in read.features["x"].windows["2026-01-01"].knots]
    assert signs == [math.copysign(1, knot) for knot in knots]


@pytest.mark.parametrize(
    ("unit", "length", "seconds", "spans"),
    [("day", 1, 86_400, "days"), ("hour", 6, 21_600, "windows of 6 hours"),
     ("minute", 4, 240, "windows of 4 minutes")],
)  # fmt: skip
def test_the_length_of_a_window(folder, unit, length, seconds, spans):
    statistics = replace(tiny_statistics(), unit=unit, length=length)
    assert statistics.window_length == seconds * 1_000_000
    manifest = WindowFolder(folder).manifest
    assert replace(manifest, unit=unit, length=length).spans == spans


def test_statistics_saved_before_windows_had_a_length_are_read(folder):
    path, known = folder / STATISTICS, WindowFolder(folder).statistics
    content = read_json(path)
    del content["length"]
    write_json(path, content)
    assert WindowFolder(folder).statistics == known


def test_a_window_uses_its_own_statistics_where_it_has_some():
    days = {name: NumberStatistics(mean=mean) for name, mean in [("d1", 1.0), ("d2", 2.0)]}
    own = FeatureStatistics(kind="number", columns=["x"], windows=days)
    shared = FeatureStatistics(kind="number", columns=["y"], mean=3.0)
    both = replace(tiny_statistics(), features={"x": own, "y": shared})
    assert both.at("d1").features["x"].newest.mean == both.at("d1").features["x"].mean == 1
    assert both.at("d2").features["x"] == replace(own, windows=None, mean=2.0)
    assert both.features["x"].newest.mean == 2
    assert both.at("d1").features["y"] == both.at("d2").features["y"] == shared


@pytest.mark.parametrize("name", [MANIFEST, STATISTICS])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda _: None, "not readable"),
        (lambda text: text[: len(text) // 2], "not readable"),
        (lambda _: "{}", "unit: Field required"),
        (lambda text: json.dumps({**json.loads(text), "unit": 3}), r"unit: .*'minute' \(got 3\)"),
        (lambda text: json.dumps({**json.loads(text), "new": 3}), "new: Unexpected"),
    ],
)
def test_a_damaged_file_is_named(folder, name, change, message):
    path = folder / name
    text = change(path.read_text())
    path.unlink()
    if text is not None:
        path.write_text(text)
    with pytest.raises(WindowError, match=f"(?s){name}: {message}.*dvc repro"):
        _ = (WindowFolder(folder).manifest, WindowFolder(folder).statistics)
