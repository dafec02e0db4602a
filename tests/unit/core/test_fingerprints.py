"""Fingerprints change with what they name, and source fingerprints with code alone."""

import pytest

from dayahead.core import fingerprints
from dayahead.core.fingerprints import fingerprint, sha256_of, source_fingerprint

CODE = '''"""A module."""

LIMIT = 3
"""What it limits."""


def double(x):
    """Return twice x."""
    return 2 * x  # twice
'''


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of two rooms."""
    monkeypatch.setattr(fingerprints, "PACKAGE", tmp_path)
    for room in ("model", "train"):
        (tmp_path / room / "deep").mkdir(parents=True)
        (tmp_path / room / "deep" / "code.py").write_text(CODE)
    source_fingerprint.cache_clear()
    yield tmp_path
    source_fingerprint.cache_clear()


def changed(package, room, before, after):
    """Whether the fingerprint of the room `model` changes with this edit in a room."""
    path = package / room / "deep" / "code.py"
    found = source_fingerprint("model")
    source_fingerprint.cache_clear()
    assert before in path.read_text()
    path.write_text(path.read_text().replace(before, after))
    return source_fingerprint("model") != found


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("A module.", "Another."),
        ("Return twice x.", "Double it."),
        ("What it limits.", ""),
        ("# twice", "# two times"),
        ("2 * x", "(2\n            * x)"),
    ],
)
def test_prose_and_layout_change_no_fingerprint(package, before, after):
    assert not changed(package, "model", before, after)


@pytest.mark.parametrize(
    ("before", "after"), [("2 * x", "3 * x"), ("LIMIT = 3", "LIMIT = 4"), ("double", "twice")]
)
def test_code_changes_the_fingerprint_of_its_room_alone(package, before, after):
    assert not changed(package, "train", before, after)
    assert changed(package, "model", before, after)


def test_a_new_module_and_a_moved_one_change_the_fingerprint(package):
    found = source_fingerprint("model", "train")
    source_fingerprint.cache_clear()
    (package / "model" / "more.py").write_text("X = 1\n")
    more = source_fingerprint("model", "train")
    source_fingerprint.cache_clear()
    (package / "model" / "more.py").rename(package / "train" / "more.py")
    assert len({found, more, source_fingerprint("model", "train")}) == 3


def test_every_room_of_the_package_has_source():
    for room in fingerprints.PACKAGE.iterdir():
        if (room / "__init__.py").exists():
            assert source_fingerprint(room.name) != source_fingerprint()


def test_the_order_of_keys_does_not_matter():
    assert fingerprint({"a": 1, "b": [2]}) == fingerprint({"b": [2], "a": 1})
    assert fingerprint({"a": 1, "b": [2]}) != fingerprint({"a": 1, "b": [3]})
    with pytest.raises(ValueError, match="JSON compliant"):
        fingerprint({"a": float("nan")})


def test_sha256_of_a_file(tmp_path):
    (tmp_path / "abc").write_bytes(b"abc")
    assert sha256_of(tmp_path / "abc") == (
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    )
