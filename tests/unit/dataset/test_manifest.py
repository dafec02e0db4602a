"""manifest.json is read as it was written, and an error names it if it cannot be."""

from datetime import UTC, datetime

import pytest

from dayahead.core.errors import DataError
from dayahead.core.files import read_json, write_json
from dayahead.dataset.manifest import EventsFile, QualityResult, RawManifest, SourceRecord

MANIFEST = RawManifest(
    dataset="mine",
    log_end=datetime(2019, 10, 2, tzinfo=UTC),
    rows=5,
    events=4,
    dropped={"no item_id": 1},
    files=(SourceRecord("a.csv", "a.csv", 99, "ab", 5, 4, {"no item_id": 1}),),
    parts=(EventsFile("events-00000.parquet", 4, "cd", "2019-10-01", "2019-10-01"),),
    quality=(QualityResult("nulls.item_id", 1, 5, 0.5, ("a.csv, line 2",), "20.00% a.csv"),),
)


def test_it_is_read_as_it_was_written(tmp_path):
    MANIFEST.write(tmp_path)
    assert RawManifest.read(tmp_path) == MANIFEST
    (result,) = read_json(tmp_path / "manifest.json")["quality"]
    assert result["share"] == 0.2


@pytest.mark.parametrize(
    "change",
    [
        lambda found: found.pop("log_end"),
        lambda found: found.update(log_end="soon"),
        lambda found: found["parts"][0].pop("sha256"),
        lambda found: found.update(parts=7),
        lambda found: found.update(more=1),
    ],
)
def test_a_damaged_manifest_is_an_error(tmp_path, change):
    MANIFEST.write(tmp_path)
    found = read_json(tmp_path / "manifest.json")
    change(found)
    write_json(tmp_path / "manifest.json", found)
    with pytest.raises(DataError, match=r"manifest\.json: not a readable manifest .*-f download"):
        RawManifest.read(tmp_path)


@pytest.mark.parametrize("text", [None, "", "[]", '{"dataset": "mi'])
def test_a_missing_or_incomplete_manifest_is_an_error(tmp_path, text):
    if text is not None:
        (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(DataError, match=r"manifest\.json: not a readable manifest"):
        RawManifest.read(tmp_path)
