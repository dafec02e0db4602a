"""Files of any compression by their content, whatever their names are."""

import bz2
import gzip
import lzma

import pyarrow as pa
import pytest
import zstandard

from dayahead.core.errors import SourceError
from dayahead.download.archives import raw_files
from support.archives import tar_of, zip_of
from support.careless_logs import batches_of

TEXT = b"session,item,time\n" + b"a,1,2\n" * 500


PACKED = {
    "gzip": gzip.compress(TEXT[:90]) + gzip.compress(b"") + gzip.compress(TEXT[90:]),
    "padded": gzip.compress(TEXT) + bytes(512),
    "zstd": zstandard.compress(TEXT[:90]) + zstandard.compress(TEXT[90:]),
    "skippable": b"\x50\x2a\x4d\x18\4\0\0\0abcd" + zstandard.compress(TEXT),
    "bz2": bz2.compress(TEXT[:90]) + bz2.compress(TEXT[90:]),
    "xz": lzma.compress(TEXT[:90]) + lzma.compress(TEXT[90:]),
    "lzma": lzma.compress(TEXT, lzma.FORMAT_ALONE),
    "lz4": pa.Codec("lz4").compress(TEXT, asbytes=True),
    "twice": gzip.compress(bz2.compress(TEXT)),
    "gzip twice": gzip.compress(gzip.compress(TEXT)),
    "plain": TEXT,
}


def read(path, content, *members):
    path.write_bytes(content)
    found = raw_files(path, path.name, members or ("*",), path.parent)
    return {raw.name: raw.stream.read() for raw in found}


@pytest.mark.parametrize("name", ["log", "log.zip"])
@pytest.mark.parametrize("kind", PACKED)
def test_content_decides(tmp_path, kind, name):
    assert read(tmp_path / name, PACKED[kind]) == {name: TEXT}


def test_truncated_files_are_damaged(tmp_path):
    for kind in ("padded", "zstd", "bz2", "xz", "lz4"):
        content = PACKED[kind].rstrip(b"\0")[:-9]
        with pytest.raises(SourceError, match="damaged"):
            batches_of(tmp_path / "a", content)


@pytest.mark.parametrize("zeros", [0, 1, 512])
def test_gzip_of_any_size(tmp_path, zeros):
    """Files of more than 16 MiB name their size without a zero at the end."""
    large = TEXT * (1 + (1 << 24) // len(TEXT))
    content = gzip.compress(TEXT, 1) + gzip.compress(large, 1)
    assert content[-1] != 0
    assert read(tmp_path / "a", content + bytes(zeros)) == {"a": TEXT + large}
    damaged = bytearray(content)
    damaged[-7] ^= 1
    for bad in (content[:-9], bytes(damaged) + bytes(zeros)):
        with pytest.raises(SourceError, match="a: damaged"):
            batches_of(tmp_path / "a", bad)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.rar", b"Rar!\x1a\x07\x01\0", "is a rar archive, which cannot be read"),
        ("a.csv.Z", b"\x1f\x9d\x90abc", r"is a file of compress"),
        ("a.csv.br", b"\x0b\x02\x80\xff\xfe", "is a brotli file"),
        ("a.sz", b"\xff\x06\0\0sNaPpY", "is a snappy file"),
        ("a.avro", b"Obj\x01\x04\x14\xff", "is an Avro file"),
        ("a.db", b"SQLite format 3\0\x10", "is an SQLite database"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path, name, content, message):
    with pytest.raises(SourceError, match=message):
        read(tmp_path / name, content)


JUNK = (
    "__MACOSX/x/._log.csv",
    "x/.DS_Store",
    "x/Thumbs.db",
    "desktop.ini",
    "_SUCCESS",
    "._log.csv",
    "a/_committed_12",
    ".part-0.crc",
    "out/_temporary/0/a.csv",
)


def of_text(archive, *names):
    return archive((name, TEXT) for name in names)


@pytest.mark.parametrize("archive", [zip_of, tar_of])
def test_junk_and_documents_beside_the_log_are_not_read(tmp_path, archive):
    def names_read(*names, members="*"):
        return [
            name.removeprefix("a::")
            for name in read(tmp_path / "a", of_text(archive, *names), members)
        ]

    names = ("x/log.csv", *JUNK, "README", "x/licence.txt", "notes.txt", "figure.png")
    for members in ("*", "*.csv"):
        assert names_read(*names, members=members) == ["x/log.csv"]
    for names in (("log.1", "log.2", "log"), ("./a/log.csv", "_log.csv", "a.b/c.csv"), ("README",)):
        assert names_read(*names) == [*names]
    assert names_read("README", "a.csv", members="README") == ["README"]
    with pytest.raises(SourceError, match=r"files of several kinds: a\.csv, b\.json\..*members"):
        names_read("a.csv", "b.json")
    with pytest.raises(SourceError, match="no file in it matches"):
        names_read(*JUNK)


def test_an_archive_within_another_is_named(tmp_path):
    for inner in (of_text(zip_of, "log.csv"), of_text(tar_of, "log.csv")):
        with pytest.raises(SourceError, match=r"a::b: is a (zip|tar) archive within another file"):
            read(tmp_path / "a", zip_of([("b", inner)]))
    with pytest.raises(SourceError, match="is a zip archive within another"):
        read(tmp_path / "a", gzip.compress(of_text(zip_of, "log.csv")))
    with pytest.raises(SourceError, match="Office document"):
        read(tmp_path / "a", of_text(zip_of, "[Content_Types].xml", "xl/workbook.xml"))
