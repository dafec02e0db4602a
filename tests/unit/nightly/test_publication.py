"""Publication: folders written whole, links replaced in one step."""

import os

import pytest

from dayahead.core.errors import DataError
from dayahead.core.files import write_text
from dayahead.nightly.publication import Publications, model_name


@pytest.fixture
def models(tmp_path):
    write_text(tmp_path / "models/config.json", "{}")
    write_text(tmp_path / "models/vocabulary/item_id.parquet", "items")
    return tmp_path / "models"


@pytest.fixture
def publications(tmp_path, models):
    found = Publications(tmp_path / "published")
    for name in ("a", "b", "c"):
        found.stage(models, name)
    return found


def test_a_name_is_the_window_and_the_content(models):
    name = model_name(models, "2026-01-01")
    assert name == model_name(models, "2026-01-01")
    assert name.startswith("2026-01-01-")
    write_text(models / "config.json", "{ }")
    assert model_name(models, "2026-01-01") != name


def test_a_staged_model_is_whole_and_not_linked(publications):
    assert (publications.path("a") / "vocabulary/item_id.parquet").read_text() == "items"
    assert publications.linked("current") == ""


def test_links_are_relative_so_the_folder_can_be_moved(publications):
    publications.link("b", "a")
    assert (publications.folder / "current").readlink().as_posix() == "b"
    publications.folder.rename(publications.folder.with_name("moved"))
    moved = publications.folder.with_name("moved")
    assert (moved / "current/config.json").exists()


def test_a_reader_always_finds_a_model(publications, monkeypatch):
    """The link is renamed over the old one, never removed."""
    publications.link("a", "")
    seen = []
    original = os.replace

    def replace(*names):
        seen.append((publications.folder / "current/config.json").exists())
        original(*names)
        seen.append((publications.folder / "current/config.json").exists())

    monkeypatch.setattr(os, "replace", replace)
    publications.link("b", "a")
    assert seen == [True] * 4


def test_a_link_to_a_folder_that_is_gone_is_refused(publications):
    with pytest.raises(DataError, match="no such folder"):
        publications.link("d", "a")
    assert publications.linked("current") == ""


def test_pruning_keeps_the_newest_and_the_linked(publications, models):
    write_text(publications.folder / "notes/own", "of the user")
    publications.link("a", "b")
    publications.prune(1, ["b", "a", "c", "c"])
    assert sorted(path.name for path in publications.folder.iterdir()) == [
        *("a", "b", "c", "current", "notes", "previous"),
    ]
    publications.link("a", "")
    publications.prune(1, ["b", "a", "c"])
    assert not publications.path("b").exists()


def test_a_model_that_was_published_again_is_as_new_as_then(publications):
    publications.prune(2, ["a", "b", "a", "c"])
    assert [name for name in "abc" if publications.path(name).exists()] == ["a", "c"]


def test_a_missing_name_removes_the_link(publications):
    publications.link("b", "a")
    publications.link("b", "")
    assert publications.linked("previous") == ""
