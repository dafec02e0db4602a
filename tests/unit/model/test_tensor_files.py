"""Tensor files: those of sharded tables are those of whole ones, and are read by rows."""

import ctypes
import errno
import gc
import json
import resource

import pytest
import torch
from safetensors.torch import save_file

from dayahead.distributed.sharding import WHOLE
from dayahead.model.tensor_files import (
    DTYPES,
    ShardedTensor,
    TensorFile,
    stored_tensors,
    write_tensors,
)

CPU = torch.device("cpu")
TENSORS = {
    "table": torch.arange(14.0).view(7, 2),
    "rows": torch.arange(10).view(5, 2),
    "step": torch.tensor(3.0),
    "none": torch.empty(0, 4),
    "stride 0": torch.tensor(3).expand(1),
    "\u00e9": torch.ones(3),
    **{f"of {name}": torch.ones(3).to(dtype) for dtype, name in DTYPES.items()},
}


def sharded(name):
    return ShardedTensor(WHOLE, TENSORS[name], len(TENSORS[name]), CPU)


def test_files_of_sharded_tables_are_those_that_safetensors_writes(tmp_path):
    found, wanted = tmp_path / "found", tmp_path / "wanted"
    write_tensors(found, TENSORS | {name: sharded(name) for name in ("table", "rows", "none")})
    save_file(TENSORS, wanted)
    assert found.read_bytes() == wanted.read_bytes()


def test_a_sharded_tables_size_is_the_whole_ones():
    table = ShardedTensor(WHOLE, torch.zeros(3, 2), 7, CPU)
    assert (table.shape, table.dtype, table.nbytes) == ((7, 2), torch.float32, 7 * 2 * 4)


def test_rows_are_read_from_a_file(tmp_path):
    write_tensors(tmp_path / "file", TENSORS)
    found = stored_tensors(tmp_path / "file")
    assert found.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert (found[name].shape, found[name].dtype) == (tensor.shape, tensor.dtype)
        assert torch.equal(found[name].whole(), tensor)
    assert torch.equal(found["table"][2:5], TENSORS["table"][2:5])


@pytest.mark.parametrize("second", [[4, 12], [16, 24], [8, 15], [8.5, 16.5]])
def test_tensors_that_overlap_or_leave_gaps_are_refused(tmp_path, second):
    number = {"dtype": "I64", "shape": [1]}
    header = {"a": {**number, "data_offsets": [0, 8]}, "b": {**number, "data_offsets": second}}
    text = json.dumps(header).encode()
    path = tmp_path / "file"
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(16))
    with pytest.raises(ValueError, match=r"b: .* does not follow"), TensorFile.open(path):
        pass


def test_an_error_of_the_file_system_is_an_oserror(tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large") as found:
            write_tensors(tmp_path / "state.safetensors", {"weights": torch.ones(2**16)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert found.value.errno == errno.EFBIG
    assert found.value.filename == str(tmp_path / "state.safetensors")


def test_tensor_files_are_readable_by_all(tmp_path):
    path = tmp_path / "state.safetensors"
    write_tensors(path, {"weights": torch.ones(2)})
    assert path.stat().st_mode & 0o777 == 0o644


def test_writing_many_sizes_holds_no_memory(tmp_path):
    write_tensors(tmp_path / "found", {"table": torch.zeros(1)})
    types = ctypes_types()
    for size in range(100, 140):
        write_tensors(tmp_path / "found", {"table": torch.zeros(size)})
    assert ctypes_types() == types


def ctypes_types():
    """Number of array types, which ctypes keeps for ever."""
    gc.collect()
    return len(ctypes.Array.__subclasses__())
