"""Files are written whole, and errors of the file system name the file."""

import errno

import pytest

from dayahead.core.files import written_whole


def test_an_error_without_a_path_gets_that_of_the_file(tmp_path):
    path = tmp_path / "a.parquet"
    with pytest.raises(OSError, match="No space left on device") as found, written_whole(path):
        raise OSError(errno.ENOSPC, "Error writing bytes to file")
    assert found.value.filename == str(path)
    assert list(tmp_path.iterdir()) == []
