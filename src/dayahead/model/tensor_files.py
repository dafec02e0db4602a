"""Tensor files (safetensors), also of sharded tables, which no process holds whole."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from math import prod
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

from dayahead.core.files import written_whole
from dayahead.distributed.sharding import Shard

DTYPES = {
    torch.int64: "I64",
    torch.float64: "F64",
    torch.float32: "F32",
    torch.int32: "I32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
"""Names of dtypes in a file. Its tensors are sorted in this order."""
_BY_NAME = {name: dtype for dtype, name in DTYPES.items()}


@dataclass(frozen=True)
class ShardedTensor:
    """A sharded table; this process holds its own rows on the CPU."""

    shard: Shard
    local: Tensor
    n_rows: int
    """Number of rows over all processes."""
    device: torch.device
    """Device from which the process group transfers data."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the whole table."""
        return self.n_rows, *self.local.shape[1:]

    @property
    def dtype(self) -> torch.dtype:
        """Type of the values."""
        return self.local.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of the whole table."""
        return prod(self.shape) * self.dtype.itemsize

    def chunks(self) -> Iterator[Tensor]:
        """Yield the whole table on rank 0, some rows at a time; a collective."""
        return self.shard.row_chunks(self.local, self.n_rows, self.device)


@dataclass(frozen=True)
class StoredTensor:
    """A tensor in a file, of which rows are read on demand."""

    path: Path
    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype

    def __getitem__(self, rows: slice) -> Tensor:
        """Read rows."""
        # The file is opened each time: pages that were read stay in memory until it is closed.
        with safe_open(self.path, framework="pt") as file:
            part: Tensor = file.get_slice(self.name)[rows]
        return part

    def whole(self) -> Tensor:
        """Read all of it."""
        with safe_open(self.path, framework="pt") as file:
            tensor: Tensor = file.get_tensor(self.name)
        return tensor


AnyTensor = Tensor | ShardedTensor


@dataclass(frozen=True)
class Layout:
    """A tensor in a file, and where its bytes begin."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    begin: int


@dataclass(frozen=True)
class TensorFile:
    """An open file, whose tensors are read into memory of their own.

    Not memory-mapped, as safetensors would: if the file is overwritten later, the tensors would
    change; if it is truncated, the process would end (SIGBUS).
    """

    file: BufferedReader
    layouts: Mapping[str, Layout]

    @classmethod
    @contextmanager
    def open(cls, path: Path) -> "Iterator[TensorFile]":
        """Open a file and read its header.

        Raises:
            ValueError: the header is damaged, or the file is longer or shorter than it says.
        """
        with path.open("rb") as file:
            yield cls(file, _layouts(file))

    def read(self, name: str) -> Tensor:
        """Read a tensor.

        Raises:
            ValueError: the file was cut off since it was opened.
        """
        layout = self.layouts[name]
        tensor = torch.empty(layout.shape, dtype=layout.dtype)
        content = tensor.reshape(-1).view(torch.uint8).numpy()
        self.file.seek(layout.begin)
        # Fewer bytes: the file was truncated after its header was read.
        if self.file.readinto(content.data) != len(content):
            raise ValueError(f"{self.file.name}: {name}: cut off")
        return tensor


def _layouts(file: BufferedReader) -> dict[str, Layout]:
    size, start = os.fstat(file.fileno()).st_size, 8
    start += int.from_bytes(file.read(8), "little")
    if start > size:
        raise ValueError(f"{file.name}: {size} bytes, expected a header of {start} bytes")
    header = json.loads(file.read(start - 8))
    header.pop("__metadata__", None)
    layouts, end = {}, start
    for name, about in sorted(header.items(), key=lambda each: each[1]["data_offsets"]):
        layouts[name] = layout = Layout(_BY_NAME[about["dtype"]], tuple(about["shape"]), end)
        is_valid = all(type(length) is int and length >= 0 for length in layout.shape)
        end += prod(layout.shape) * layout.dtype.itemsize if is_valid else 0
        if not is_valid or about["data_offsets"] != [layout.begin - start, end - start]:
            raise ValueError(f"{file.name}: {name}: {about} does not follow the tensor before it")
    if end != size:
        raise ValueError(f"{file.name}: {size} bytes, expected {end}, as its header says")
    return layouts


def write_tensors(path: Path, tensors: Mapping[str, AnyTensor]) -> None:
    """Write safetensors atomically, without a copy in memory or holding a sharded table.

    With sharded ones it is a collective: rank 0 writes, while the others `send_rows`. Not by
    safetensors: `torch.save_file` makes a type of ctypes for each size in bytes, which Python never
    frees, and tables of counts have a new size in every window.

    Raises:
        OSError: an error of the file system.
    """
    ordered = _in_file_order(tensors)
    with written_whole(path) as temporary, temporary.open("wb") as file:
        file.write(_header(ordered))
        for _, tensor in ordered:
            for chunk in tensor.chunks() if isinstance(tensor, ShardedTensor) else [tensor]:
                # [..., 1]: without it torch gives no bytes of a single number whose stride is 0.
                file.write(chunk.contiguous()[..., None].view(torch.uint8).numpy().data)


def is_sharded(tensors: Mapping[str, AnyTensor]) -> bool:
    """Whether any of the tensors is sharded."""
    return any(isinstance(each, ShardedTensor) for each in tensors.values())


def send_rows(tensors: Mapping[str, AnyTensor]) -> None:
    """Send this process's rows of the sharded tensors to rank 0, which writes them."""
    for _, tensor in _in_file_order(tensors):
        if isinstance(tensor, ShardedTensor):
            for _ in tensor.chunks():
                pass


def stored_tensors(path: Path) -> dict[str, StoredTensor]:
    """Return the tensors of a file by name, without reading them."""
    with safe_open(path, framework="pt") as file:
        parts = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
        return {
            name: StoredTensor(path, name, tuple(part.get_shape()), _BY_NAME[part.get_dtype()])
            for name, part in parts.items()
        }


def _in_file_order(tensors: Mapping[str, AnyTensor]) -> list[tuple[str, AnyTensor]]:
    """Sort as safetensors does: by dtype, then by name."""
    dtypes = list(DTYPES)
    return sorted(tensors.items(), key=lambda each: (dtypes.index(each[1].dtype), each[0]))


def _header(ordered: list[tuple[str, AnyTensor]]) -> bytes:
    """Return the header of a safetensors file: the length of a JSON text, and that text."""
    about, end = {}, 0
    for name, tensor in ordered:
        begin, end = end, end + tensor.nbytes
        shape, offsets = list(tensor.shape), [begin, end]
        about[name] = {"dtype": DTYPES[tensor.dtype], "shape": shape, "data_offsets": offsets}
    text = json.dumps(about, separators=(",", ":"), ensure_ascii=False).encode()
    # safetensors aligns the tensors' bytes to 8.
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text
