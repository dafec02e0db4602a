"""Archives: every kind reads the same, and nothing is written outside the folder."""

import errno
import gzip
import os
import shutil
import subprocess
import sys
import tarfile
from functools import partial
from pathlib import Path

import py7zr
import pytest

from dayahead.core.errors import DataError, SourceError
from dayahead.download import archives
from dayahead.download.archives import raw_files, wrap_errors
from dayahead.download.batches import BLOCK
from support.archives import Files, seven_zip_of, tar_of, zip_of

ROOT = Path(__file__).parents[3]
TEXT = b"session,item\n" + b"s,1\n" * 50_000
README = b"not a table"
ZEROS = [("a.csv", bytes(1 << 19)), ("b.csv", bytes(3 << 20))]


MAKERS = {
    "a.zip": zip_of,
    "a.7z": seven_zip_of,
    "a.tar": tar_of,
    "a.tar.gz": partial(tar_of, mode="w:gz"),
}


def write(path: Path, files: Files) -> None:
    """Write an archive of the kind that its name says."""
    path.write_bytes(MAKERS[path.name](files))


def read(path: Path, *members: str) -> dict[str, bytes]:
    scratch = path.parent / "scratch"
    scratch.mkdir(exist_ok=True)
    found = {}
    for raw in raw_files(path, path.name, members or ("*",), scratch):
        with wrap_errors(raw.name):
            found[raw.name] = raw.stream.read()
    assert list(scratch.iterdir()) == []
    return found


@pytest.mark.parametrize("kind", MAKERS)
def test_members_are_selected_by_globs(tmp_path, kind):
    path = tmp_path / kind
    files = {"logs/b.csv": TEXT, "a.csv": TEXT[:100], "README": README}
    files["logs/c.csv.gz"] = gzip.compress(TEXT)
    write(path, files.items())
    assert read(path, "*.csv") == {f"{kind}::logs/b.csv": TEXT, f"{kind}::a.csv": TEXT[:100]}
    assert read(path, "c.csv.gz") == {f"{kind}::logs/c.csv.gz": TEXT}
    assert list(read(path, "README", "b.*")) == [f"{kind}::logs/b.csv", f"{kind}::README"]


@pytest.mark.parametrize("kind", MAKERS)
def test_no_matching_member_is_an_error_that_lists_the_members(tmp_path, kind):
    write(tmp_path / kind, [("README", README)])
    with pytest.raises(
        SourceError, match=r"no file in it matches source\.members \*\.csv, a\*; it holds README"
    ):
        read(tmp_path / kind, "*.csv", "a*")


@pytest.mark.parametrize("kind", ["a.zip", "a.tar"])
@pytest.mark.parametrize(
    "member", ["../evil.csv", "logs/../../evil.csv", "/evil.csv", "..\\evil.csv"]
)
def test_members_outside_the_folder_are_rejected(tmp_path, kind, member):
    inner = tmp_path / "inner"
    inner.mkdir()
    write(inner / kind, [(member, TEXT)])
    with pytest.raises(SourceError, match="outside"):
        read(inner / kind)
    assert not (tmp_path / "evil.csv").exists()


def test_7z_members_outside_the_folder_are_rejected(tmp_path):
    inner = tmp_path / "inner"
    inner.mkdir()
    with py7zr.SevenZipFile(inner / "a.7z", "w") as archive:
        archive.writestr(TEXT, "harmless.csv")
        for info in archive.header.files_info.files:
            info["filename"] = "../evil.csv"
    with pytest.raises(SourceError, match="outside"):
        read(inner / "a.7z")
    assert not (tmp_path / "evil.csv").exists()


def test_links_are_skipped(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        link = tarfile.TarInfo("link.csv")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    with pytest.raises(SourceError, match="it holds nothing"):
        read(tmp_path / "a.tar", "*.csv")


@pytest.mark.parametrize("kind", ["a.zip", "a.7z", "a.tar"])
@pytest.mark.parametrize("second", ["a.csv", "./a.csv"])
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_members_of_one_name_are_an_error(tmp_path, kind, second):
    files = [("a.csv", TEXT), (second, TEXT[:100]), ("b.csv", TEXT)]
    write(tmp_path / kind, files)
    with pytest.raises(SourceError, match=rf"{kind}: holds two files called a\.csv: .*Unpack"):
        read(tmp_path / kind, "*.csv")
    assert read(tmp_path / kind, "b.csv") == {f"{kind}::b.csv": TEXT}


@pytest.mark.parametrize("target", ["/etc/passwd", "../secret.csv", "secret.csv"])
def test_links_of_a_7z_are_not_followed(tmp_path, target):
    inner = tmp_path / "inner"
    inner.mkdir()
    for folder in (tmp_path, inner):
        (folder / "secret.csv").write_bytes(b"secret")
    link = inner / "link.csv"
    link.symlink_to(target)
    with py7zr.SevenZipFile(inner / "a.7z", "w") as archive:
        archive.write(link, "link.csv")
    with pytest.raises(SourceError, match=r"damaged|it holds nothing"):
        read(inner / "a.7z", "*.csv")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.zip", zip_of(ZEROS)),
        ("a.tar.gz", tar_of(ZEROS, "w:gz")),
        ("b.csv.gz", gzip.compress(ZEROS[1][1])),
    ],
)
def test_zip_bombs_are_rejected(tmp_path, name, content, monkeypatch):
    monkeypatch.setattr(archives, "FREE_BYTES", 1 << 20)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SourceError, match=r"b\.csv.*more than 200 times its size"):
        read(tmp_path / name, "*.csv")


@pytest.mark.parametrize("kind", ["a.7z", "a.tar"])
def test_what_is_checked_against_the_disk_or_not_compressed_is_no_bomb(tmp_path, kind, monkeypatch):
    monkeypatch.setattr(archives, "FREE_BYTES", 1 << 20)
    write(tmp_path / kind, ZEROS)
    assert len(read(tmp_path / kind, "*.csv")) == 2


@pytest.mark.parametrize("kind", MAKERS)
def test_a_truncated_archive_is_an_error(tmp_path, kind):
    write(tmp_path / kind, [("a.csv", bytes(range(256)) * 400)])
    whole = (tmp_path / kind).read_bytes()
    (tmp_path / kind).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(SourceError, match=f"{kind}.*damaged"):
        read(tmp_path / kind)


def test_a_protected_archive_is_an_error(tmp_path):
    with py7zr.SevenZipFile(tmp_path / "a.7z", "w", password="x") as archive:
        archive.writestr(TEXT, "a.csv")
    with pytest.raises(SourceError, match=r"a\.7z: damaged, or not what its name says"):
        read(tmp_path / "a.7z")


def test_a_7z_is_unpacked_only_if_there_is_space(tmp_path, monkeypatch):
    write(tmp_path / "a.7z", [("a.csv", TEXT), ("b.txt", README)])
    usage = shutil.disk_usage(tmp_path)._replace(free=len(TEXT) - 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(DataError, match=r"unpacking a\.7z needs 0\.2 MB, but only 0\.2 MB are"):
        read(tmp_path / "a.7z", "*.csv")
    assert list((tmp_path / "scratch").iterdir()) == []
    assert list(read(tmp_path / "a.7z", "*.txt")) == ["a.7z::b.txt"]


# Not getrusage: its peak includes that of the parent process before exec.
PEAK = """
import sys
from pathlib import Path
{body}
status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
print(int(status["VmHWM"].split()[0]) * 1024)
"""
READ = """
from dayahead.download import archives
from dayahead.download.archives import raw_files
for raw in raw_files(Path(sys.argv[1]), "log", ("*",), Path()):
    while raw.stream.read(1 << 20):
        pass
"""
DOWNLOAD = """
from dayahead.download import convert
from dayahead.download.stage import download
from support.sources import a_dataset
convert.MAX_EVENTS = convert.ROW_GROUP  # the memory of a part must not hide growth with the file
download(a_dataset(source={"urls": [sys.argv[1]]}), "big", Path("raw"))
"""


def write_gzip(path: Path, n_bytes: int) -> None:
    """Write a compressed table of that many bytes of text: the same rows again and again."""
    rows = "".join(f"s{n // 10:06d},{n % 977},2024-01-{1 + n % 28:02d}\n" for n in range(50_000))
    packed = gzip.compress(rows.encode())
    with path.open("wb") as file:
        file.write(gzip.compress(b"session,item,time\n"))
        file.writelines([packed] * (n_bytes // len(rows)))


def peak_of(body: str, path: Path) -> int:
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")]),
        "DVC_ROOT": str(path.parent),
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-c", PEAK.format(body=body), str(path)]
    output = subprocess.check_output(command, cwd=path.parent, env=environment)
    return int(output.split()[-1])


def test_a_full_disk_is_not_a_damaged_file():
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    match = r"^log\.gz: cannot be unpacked: .*space"
    with pytest.raises(DataError, match=match), wrap_errors("log.gz"):
        raise full


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "n_bytes", "limit"),
    [
        pytest.param(READ, 200_000_000, 20_000_000, id="read"),
        # Arrow reads 32 blocks ahead.
        pytest.param(DOWNLOAD, 500_000_000, 40 * BLOCK, id="download"),
    ],
)
def test_memory_does_not_grow_with_a_gzip(tmp_path, body, n_bytes, limit):
    write_gzip(tmp_path / "small.csv.gz", 20_000_000)
    write_gzip(tmp_path / "large.csv.gz", n_bytes)
    growth = peak_of(body, tmp_path / "large.csv.gz") - peak_of(body, tmp_path / "small.csv.gz")
    assert growth < limit
