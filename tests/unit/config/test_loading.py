"""YAML is read as DVC reads it; damaged text is an error in words, or just other settings."""

import random
from pathlib import Path

import pytest

from dayahead.config.loading import read_yaml
from dayahead.config.params import load_params
from dayahead.core.errors import ConfigError
from dayahead.dataset.schema import load_dataset

ROOT = Path(__file__).parents[3]
DATASETS = sorted((ROOT / "datasets").glob("*.yaml"))


def damaged(path, seed):
    """A file's bytes with a bit flipped; of every third seed cut off there, too."""
    stream = random.Random(seed)
    content = bytearray(path.read_bytes())
    index = stream.randrange(len(content))
    content[index] ^= 1 << stream.randrange(8)
    return bytes(content[:index] if seed % 3 == 0 else content)


def is_read_or_named(load, name):
    """Whether it loads, or fails with an error that names the file; another error is raised."""
    try:
        load()
    except ConfigError as error:
        return name in str(error)
    return True


@pytest.mark.long
def test_damaged_settings_are_read_or_named(tmp_path):
    path = tmp_path / "params.yaml"

    def is_read(seed):
        path.write_bytes(damaged(ROOT / "params.yaml", seed))
        return is_read_or_named(lambda: load_params(path), "params.yaml")

    assert [seed for seed in range(60) if not is_read(seed)] == []


def test_damaged_data_sets_are_read_or_named(tmp_path, monkeypatch):
    monkeypatch.setenv("DAYAHEAD_DATA", str(tmp_path))

    def is_read(seed):
        source = DATASETS[seed % len(DATASETS)]
        (tmp_path / source.name).write_bytes(damaged(source, seed))
        return is_read_or_named(lambda: load_dataset(source.stem, tmp_path), source.name)

    assert [seed for seed in range(60) if not is_read(seed)] == []


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a: [", "not readable as YAML"),
        ("a: 2016-06-02T80:00:00Z", "not readable as YAML: .* must be in"),
        ("a: 2014-09-30T03:00:81Z", "not readable as YAML: .* must be in"),
        ("a: 2026-81-01", "not readable as YAML: .* must be in"),
        (None, "no such file"),
    ],
)
def test_what_is_not_yaml_is_named(tmp_path, text, complaint):
    path = tmp_path / "x.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=rf"x\.yaml: {complaint}"):
        read_yaml(path)


def test_values_are_read_as_dvc_reads_them(tmp_path):
    """PyYAML would read `1e-3` as text and `no` as false."""
    (tmp_path / "x.yaml").write_text("rate: 1e-3\nword: no\n")
    assert read_yaml(tmp_path / "x.yaml") == {"rate": 0.001, "word": "no"}


@pytest.mark.parametrize(
    ("typo", "suggestion"),
    [
        ("columns: {item_idd: clicked}", "columns.item_idd: .* did you mean item_id"),
        ("sesions: {max_length: 20}", "sesions: .* did you mean sessions"),
        ("sessions: {maxlength: 20}", "sessions.maxlength: .* did you mean max_length"),
        ("features: {price: {kind: number, colum: p}}", "price.*colum: .* did you mean column"),
        ("qwxz: 1", "qwxz: .* no setting has such a name"),
    ],
)
def test_a_misspelt_key_of_a_data_set_gets_a_suggestion(tmp_path, typo, suggestion):
    (tmp_path / "mine.yaml").write_text(typo)
    with pytest.raises(ConfigError, match=suggestion):
        load_dataset("mine", tmp_path)
