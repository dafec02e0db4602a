"""The list of forgotten users: in the data set's file, which otherwise stays as it is."""

import pytest

from dayahead.core.errors import ConfigError
from dayahead.dataset.schema import load_dataset
from dayahead.erasure.suppression import suppress_users

TEXT = """# my shop: gr\u00f6\u00dfer
description: a shop
licence: none
source: {urls: [a.csv]}
columns: {item_id: {column: item}, user_id: user, session_id: session}
time: {column: time}
sessions: {repeats: {rule: keep, scope: session}}   # a comment
features: {}
split: {seed: 1, train: [0, 1], valid: [0, 0.5], test: [0.5, 1]}
"""


@pytest.fixture
def path(tmp_path):
    (tmp_path / "shop.yaml").write_text(TEXT, encoding="utf-8")
    return tmp_path / "shop.yaml"


def test_users_are_listed_by_hashes_and_the_text_stays(path):
    users = ["4711", "\u00c5sa", *(f"u{n}" for n in range(300))]
    assert suppress_users(path, users) == 302
    text = path.read_text(encoding="utf-8")
    assert text.startswith(TEXT)
    assert "\u00c5sa" not in text.removeprefix(TEXT)
    forgotten = load_dataset("shop", path.parent).forgotten
    assert set(forgotten.users) == {forgotten.hash_of(user) for user in users}
    assert suppress_users(path, ["u7", "new"]) == 1
    again = load_dataset("shop", path.parent).forgotten
    assert again.key == forgotten.key
    assert set(again.users) == {*forgotten.users, forgotten.hash_of("new")}
    assert path.read_text(encoding="utf-8").count("forgotten:") == 1


def test_every_list_has_a_key_of_its_own(path):
    suppress_users(path, ["u1"])
    first = load_dataset("shop", path.parent).forgotten
    path.write_text(TEXT, encoding="utf-8")
    suppress_users(path, ["u1"])
    assert load_dataset("shop", path.parent).forgotten.users != first.users


def test_what_follows_the_section_stays(path):
    suppress_users(path, ["u1"])
    path.write_text(path.read_text(encoding="utf-8") + "quality: {unreadable: 0.5}\n")
    suppress_users(path, ["u2"])
    dataset = load_dataset("shop", path.parent)
    assert len(dataset.forgotten.users) == 2
    assert dataset.quality.unreadable == 0.5


def test_a_section_in_another_form_is_not_broken(path):
    text = TEXT + '? forgotten\n: {key: "' + "0" * 32 + '", users: []}\n'
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match="forgotten cannot be replaced"):
        suppress_users(path, ["u1"])
    assert path.read_text(encoding="utf-8") == text
