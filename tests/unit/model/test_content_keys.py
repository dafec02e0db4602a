"""The key of a published model's content: that of its name, or the model is refused."""

import pytest

from dayahead.core.errors import ModelFileError
from dayahead.core.files import write_text
from dayahead.model.content_keys import check_content, content_key


@pytest.fixture
def published(tmp_path):
    folder = tmp_path / "aside"
    write_text(folder / "config.json", "{}")
    write_text(folder / "vocabulary/item_id.parquet", "items")
    return folder.rename(tmp_path / f"2026-01-01T13-{content_key(folder)}")


def test_a_published_model_is_as_its_name_says(published, tmp_path):
    check_content(published)
    (tmp_path / "current").symlink_to(published.name)
    check_content(tmp_path / "current")


def test_files_with_hidden_names_do_not_count(published):
    write_text(published / ".ipynb_checkpoints/config.json", "{ }")
    write_text(published / "vocabulary/.DS_Store", "")
    check_content(published)


def removed(folder):
    (folder / "config.json").unlink()


def swapped(folder):
    write_text(folder / "config.json", "items")
    write_text(folder / "vocabulary/item_id.parquet", "{}")


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: write_text(folder / "config.json", "{ }"),
        lambda folder: write_text(folder / "vocabulary/item_id.parquet", "itemt"),
        lambda folder: write_text(folder / "more.json", ""),
        lambda folder: (folder / "config.json").rename(folder / "configs.json"),
        removed,
        swapped,
    ],
)
def test_any_other_content_is_refused(published, tmp_path, change):
    change(published)
    (tmp_path / "current").symlink_to(published.name)
    with pytest.raises(ModelFileError, match=rf"published as {published.name}"):
        check_content(tmp_path / "current")


@pytest.mark.parametrize("name", ["models", "2026-01-01", "2026-01-01-abc", "2026-01-01-gpt2-base"])
def test_folders_of_other_names_have_no_key(published, name):
    folder = published.rename(published.with_name(name))
    check_content(folder)
