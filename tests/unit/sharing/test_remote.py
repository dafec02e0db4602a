"""Remotes are those of DVC; what is wrong with one is said in one line."""

import subprocess
import sys

import pytest

from dayahead.core.errors import ConfigError
from dayahead.sharing.push import push
from dayahead.sharing.remote import RemoteError, open_remote
from support.dvc_remotes import FITS, dvc_project, folder_remote, put

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


def test_the_default_remote_or_a_named_one(tmp_path):
    project = dvc_project(tmp_path / "p", store=str(tmp_path / "a"), other=str(tmp_path / "b"))
    assert open_remote(project).shown == f"remote store ({tmp_path / 'a'})"
    assert open_remote(project, "other").shown == f"remote other ({tmp_path / 'b'})"


def test_an_empty_remote_has_no_entry(tmp_path):
    assert folder_remote(tmp_path).names == set()


@pytest.mark.parametrize(
    ("remotes", "name", "message"),
    [
        ({}, None, "there is no default remote in .*; add one: dvc remote add -d NAME URL"),
        ({}, "store", "there is no remote 'store' in .*; add one: dvc remote add"),
        ({"a": "/a", "b": "/b"}, "c", "there is no remote 'c' in .*; name one of a, b"),
        ({"web": "https://host/x"}, None, "remote web: cannot hold a cache .https lists no files"),
        ({"odd": "nonsense://x"}, None, "config: .* Unsupported URL type nonsense"),
        ({"gone": "remote://b/x"}, None, "there is no remote 'gone'|doesn't exist"),
        ({"cloud": "gdrive://x"}, None, "remote cloud: .* requires 'dvc-gdrive' .*with pip"),
    ],
)
def test_a_remote_that_cannot_be_used_is_named(tmp_path, remotes, name, message):
    with pytest.raises(ConfigError, match=message) as caught:
        open_remote(dvc_project(tmp_path / "p", **remotes), name)
    assert "\n" not in str(caught.value)


def test_several_remotes_without_a_default_are_named(tmp_path):
    project = dvc_project(tmp_path / "p", a="/a", b="/b")
    config = project / ".dvc" / "config"
    config.write_text(config.read_text().replace("remote = a\n", ""))
    with pytest.raises(ConfigError, match=r"no default remote in .*; name one of a, b"):
        open_remote(project)


def test_a_worktree_remote_is_refused(tmp_path):
    """`dvc push` would remove the cache from it."""
    pytest.importorskip("dvc_s3", reason="dvc-s3 is not installed")
    project = dvc_project(tmp_path / "p", "worktree = true", store="s3://bucket/x")
    with pytest.raises(ConfigError, match=r"cannot hold a cache \(a worktree remote"):
        open_remote(project)


def test_a_folder_outside_a_project_is_named(tmp_path):
    with pytest.raises(ConfigError, match="not a DVC project"):
        open_remote(tmp_path)


def test_a_remote_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "store").write_text("a file is in the way")
    entry = put(tmp_path / "cache", FITS, "a", x="1")
    with pytest.raises(RemoteError, match=r"remote store \(.*/store\): cannot be .*Check its add"):
        push(tmp_path / "cache", folder_remote(tmp_path), [entry])


def test_passwords_of_an_address_are_not_shown(tmp_path):
    pytest.importorskip("dvc_s3", reason="dvc-s3 is not installed")
    project = dvc_project(tmp_path / "p", store="s3://me:secret@bucket/x")
    assert "secret" not in open_remote(project).shown


@pytest.mark.slow
def test_dvc_s_garbage_collection_leaves_the_cache(tmp_path):
    project = dvc_project(tmp_path / "p", store=str(tmp_path / "store"))
    (project / "data.txt").write_text("1")
    (tmp_path / "store" / "files" / "md5" / "ab").mkdir(parents=True)
    garbage = tmp_path / "store" / "files" / "md5" / "ab" / "0123456789abcdef0123456789abcd"
    garbage.write_text("nothing refers to this")
    entry = put(project / ".dayahead", FITS, "a", x="1")
    push(project / ".dayahead", open_remote(project), [entry])
    for command in ("add -q data.txt", "push -q", "gc -q -w -c -f"):
        subprocess.run([sys.executable, "-m", "dvc", *command.split()], cwd=project, check=True)
    assert not garbage.exists()
    again = push(project / ".dayahead", open_remote(project), [entry])
    assert (again.moved, again.present) == ({}, {FITS: 1})
