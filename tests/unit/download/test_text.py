"""Text of any encoding, cut into chunks at any place."""

import io

import pytest

from dayahead.core.errors import SourceError
from dayahead.dataset.source import SourceConfig
from dayahead.download import text
from dayahead.download.archives import RawFile
from dayahead.download.text import Text
from support.careless_logs import batches_of


def of(content, edit=None, **source):
    raw = RawFile("a", io.BytesIO(content))
    return Text(raw, SourceConfig(urls=("unused",), **source), edit)


@pytest.mark.parametrize("n_bytes", range(20, 32))
def test_a_long_line_is_never_cut_within_a_character(monkeypatch, n_bytes):
    monkeypatch.setattr(text, "_MAX_LINE", n_bytes)
    monkeypatch.setattr(text, "_CHUNK", 7)
    written = "[é日😀" * 30
    found = of(written.encode())
    assert found.stream.read().decode() == written
    assert not found.has_marks


@pytest.mark.parametrize("n_bytes", range(1, 9))
def test_line_ends_of_two_characters_are_edited_together(monkeypatch, n_bytes):
    monkeypatch.setattr(text, "_CHUNK", n_bytes)
    edited = []
    content = b"ab\r\ncd\r\n\r\ne\rf\r\n"
    assert of(content, lambda lines: edited.append(lines) or lines).stream.read() == content
    assert not any(lines.startswith(b"\n") for lines in edited)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "punycode"])
def test_bytes_that_are_not_of_the_encoding_name_it(tmp_path, encoding):
    content = b"session,item,time\n\xff,1,2\n"
    with pytest.raises(SourceError, match=rf"a: not readable as {encoding}: .*source\.encoding"):
        batches_of(tmp_path / "a", content, encoding=encoding)
