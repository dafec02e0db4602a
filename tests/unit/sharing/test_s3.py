"""The cache on S3: moto's server, which keeps objects in this process's memory."""

from hashlib import sha256
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from dayahead.sharing.bounded import download_file
from dayahead.sharing.manifest import EntryError
from dayahead.sharing.pull import pull
from dayahead.sharing.push import push
from dayahead.sharing.remote import RemoteError, open_remote
from support.dvc_remotes import EVALUATIONS, FITS, content, dvc_project, put

pytest.importorskip("dvc_s3", reason="dvc-s3 is not installed: no S3 remotes")
pytest.importorskip("moto", reason="moto is not installed: no S3 to test on")


BUCKET = "bucket"


@pytest.fixture(scope="module")
def endpoint():
    """The address of a server with an empty bucket."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    address = f"http://{host}:{port}"
    urlopen(Request(f"{address}/{BUCKET}", method="PUT")).close()
    yield address
    server.stop()


@pytest.fixture
def s3(tmp_path, endpoint, monkeypatch):
    """Opens a remote in a folder of the bucket, of this test alone."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    keys = ("access_key_id = me", "secret_access_key = secret")

    def opened(url=f"s3://{BUCKET}/{tmp_path.name}", *lines, address=endpoint, keys=keys):
        project = tmp_path / f"project-{len(list(tmp_path.glob('project-*')))}"
        return open_remote(dvc_project(project, f"endpointurl = {address}", *keys, *lines, s3=url))

    return opened


def test_a_round_trip(tmp_path, s3):
    here, there = tmp_path / "here", tmp_path / "there"
    entries = [put(here, FITS, "a", x="1", y="2"), put(here, EVALUATIONS, "b", x="1")]
    assert push(here, s3(), entries).moved == {FITS: 1, EVALUATIONS: 1}
    again = push(here, s3(), entries)
    assert (again.moved, again.n_files) == ({}, {})
    assert pull(there, s3(), entries, []).moved == {FITS: 1, EVALUATIONS: 1}
    assert [content(there, entry) for entry in entries] == [{"x": "1", "y": "2"}, {"x": "1"}]


@pytest.mark.slow
def test_a_file_larger_than_a_part_of_an_upload(tmp_path, s3):
    entry = put(tmp_path / "here", FITS, "a", x="x" * (60 << 20))
    assert push(tmp_path / "here", s3(), [entry]).n_bytes == {FITS: 60 << 20}
    assert pull(tmp_path / "there", s3(), [entry], []).moved == {FITS: 1}


SHA256 = {n: sha256(b"%d" % n).hexdigest() for n in (1, 2)}


@pytest.mark.long
@pytest.mark.parametrize(
    ("n_bytes", "found"),
    [
        (0, "is damaged there: it has 0 bytes, not 1"),
        (1, f"is damaged there: its sha256 is {SHA256[2]}, not {SHA256[1]}"),
        (7, "has more than 1 bytes there"),
        pytest.param(20 << 20, "has more than 1 bytes there", marks=pytest.mark.slow),
    ],
)
def test_a_damaged_object_is_refused(tmp_path, s3, n_bytes, found):
    entry = put(tmp_path / "here", FITS, "a", x="1")
    push(tmp_path / "here", s3(), [entry])
    remote = s3()
    [name] = [name for folder, name in remote.names if folder == "files"]
    remote.fs.pipe_file(f"{remote.folder}/files/{name}", b"2" * n_bytes)
    reason = pull(tmp_path / "there", s3(), [entry], []).refused[entry]
    assert reason == f"ranks/x.json {found}"
    assert content(tmp_path / "there", entry) is None


def test_a_transfer_that_brings_more_than_the_server_said_is_stopped(tmp_path):
    """As of a server that lies: the length that it names is not that of what it sends."""
    target = tmp_path / "target"

    class Lying:
        def info(self, path):
            return {"type": "file", "size": 1}

        def get_file(self, source, target, callback):
            for _ in range(1000):
                with Path(target).open("ab") as file:
                    file.write(b"x" * 1000)
                callback.relative_update(1000)

    with pytest.raises(EntryError, match="has more than 1,500 bytes there"):
        download_file(Lying(), "a", target, 1500)
    assert target.stat().st_size == 2000


def refused(tmp_path, remote):
    entry = put(tmp_path / "here", FITS, "a", x="1")
    with pytest.raises(RemoteError) as caught:
        push(tmp_path / "here", remote, [entry])
    message = str(caught.value)
    assert "\n" not in message
    assert "secret" not in message
    return message


def test_a_bucket_that_is_not_there_is_named(tmp_path, s3):
    assert "NoSuchBucket" in refused(tmp_path, s3("s3://nowhere/x"))


def test_missing_credentials_are_named(tmp_path, s3):
    assert "Unable to locate credentials" in refused(tmp_path, s3(keys=()))


@pytest.mark.slow
def test_a_server_that_is_not_there_is_named(tmp_path, s3, free_port):
    address = f"http://127.0.0.1:{free_port}"
    assert f'Could not connect to the endpoint URL: "{address}' in refused(
        tmp_path, s3(address=address)
    )
