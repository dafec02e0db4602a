"""Saved models damaged in every way that a disk, a copy or an editor may, and what they answer."""

import json
import os
import random
import shutil
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from safetensors.torch import load_file, save_file

from dayahead.core.errors import DayaheadError
from dayahead.serve.recommender import Recommender
from support.window_folders import raw_events

Damage = Callable[[Path, random.Random], str]
"""Damages a copy of a model; returns what it did."""
TENSORS = "model.safetensors"
CONFIG = "config.json"
HUGE = {"f": 3e38, "i": 2**31 - 1, "b": 1}
VALUES = (10**9, 10**18, 65_536, 0, -1, 1e300, None, "", "x", [], {}, True)
FINITE = "finite scores"


def flip_bytes(folder: Path, stream: random.Random) -> str:
    path = folder / stream.choice([TENSORS, TENSORS, TENSORS, CONFIG, *_vocabularies(folder)])
    content = bytearray(path.read_bytes())
    n_flipped = stream.choice([1, 20, 200])
    for _ in range(n_flipped):
        content[stream.randrange(len(content))] ^= 1 << stream.randrange(8)
    path.write_bytes(content)
    return f"{n_flipped} bytes of {path.name} flipped"


def flip_data(folder: Path, stream: random.Random) -> str:
    """Flip 200 bytes of the tensors, and none of the header."""
    path = folder / TENSORS
    content = bytearray(path.read_bytes())
    begin = 8 + int.from_bytes(content[:8], "little")
    for _ in range(200):
        content[stream.randrange(begin, len(content))] ^= 1 << stream.randrange(8)
    path.write_bytes(content)
    return "200 bytes of the tensors flipped"


def cut_off(folder: Path, stream: random.Random) -> str:
    path = folder / stream.choice([TENSORS, CONFIG, *_vocabularies(folder)])
    size = stream.randrange(path.stat().st_size)
    os.truncate(path, size)
    return f"{path.name} cut off at {size}"


def remove_file(folder: Path, stream: random.Random) -> str:
    path = folder / stream.choice([TENSORS, CONFIG, *_vocabularies(folder)])
    path.unlink()
    return f"{path.name} removed"


def halve(folder: Path, stream: random.Random) -> str:
    return _change(folder, stream, "halved", lambda each: each[: len(each) // 2].clone())


def double(folder: Path, stream: random.Random) -> str:
    return _change(folder, stream, "doubled", lambda each: torch.cat([each, each]))


def add_dimension(folder: Path, stream: random.Random) -> str:
    return _change(folder, stream, "with one more dimension", lambda each: each[..., None].clone())


def shuffle(folder: Path, stream: random.Random) -> str:
    return _change(folder, stream, "reversed", lambda each: each.flip(0).contiguous())


def set_huge(folder: Path, stream: random.Random) -> str:
    sign, width = stream.choice([1, -1]), stream.choice([1, 31])

    def change(each: torch.Tensor) -> torch.Tensor:
        value = HUGE[_kind(each)] * (2**width if each.dtype == torch.int64 else 1)
        if each.dtype == torch.float16:
            value = 60_000
        return _set(each, stream, sign * value)

    return _change(folder, stream, f"with huge values ({sign})", change)


def set_near(folder: Path, stream: random.Random) -> str:
    """Set values that are just out of range, or within it."""
    value = stream.choice([-1, 0, 1, 2, 15, 16, 17, 18, 40])
    return _change(folder, stream, f"with {value}", lambda each: _set(each, stream, value))


def set_nan(folder: Path, stream: random.Random) -> str:
    value = stream.choice([torch.nan, torch.inf, -torch.inf])
    return _change(folder, stream, f"with {value}", lambda each: _set(each, stream, value), "f")


def set_dtype(folder: Path, stream: random.Random) -> str:
    dtype = stream.choice([torch.int64, torch.int32, torch.float32, torch.float64, torch.uint8])
    return _change(folder, stream, f"as {dtype}", lambda each: each.to(dtype))


def swap_tensors(folder: Path, stream: random.Random) -> str:
    tensors = load_file(folder / TENSORS)
    one, other = stream.sample(sorted(tensors), 2)
    tensors[one], tensors[other] = tensors[other].clone(), tensors[one].clone()
    _save(folder, tensors)
    return f"{one} and {other} swapped"


def remove_tensor(folder: Path, stream: random.Random) -> str:
    tensors = load_file(folder / TENSORS)
    name = stream.choice(sorted(tensors))
    del tensors[name]
    _save(folder, tensors)
    return f"{name} removed"


def edit_config(folder: Path, stream: random.Random) -> str:
    path = folder / CONFIG
    config = json.loads(path.read_text())
    where = stream.choice(list(_leaves(config)))
    held = config
    for key in where[:-1]:
        held = held[key]
    value = stream.choice(["removed", *VALUES])
    if value == "removed":
        del held[where[-1]]
    else:
        held[where[-1]] = value
    path.write_text(json.dumps(config))
    return f"{'.'.join(map(str, where))}: {value}"


def edit_sizes(folder: Path, stream: random.Random) -> str:
    """Set a size that the tensors do not have."""
    path = folder / CONFIG
    config = json.loads(path.read_text())
    section, name = stream.choice(
        [("model", "d_model"), ("model", "n_layer"), ("model", "item_embedding_dim"),
         ("model", "number_dim"), ("model", "soft_one_hot"), ("model", "n_head"),
         ("memory", "head_width"), ("memory", "n_candidates"), ("sizes", "item_id"),
         ("first_sizes", "item_id"), ("linear", "n_items"), ("neighbours", "sample_size")]
    )  # fmt: skip
    value = stream.choice([10**9, 60_000, 999, 32, 8])
    config[section][name] = value
    path.write_text(json.dumps(config))
    return f"{section}.{name}: {value}"


def edit_vocabulary(folder: Path, stream: random.Random) -> str:
    path = folder / stream.choice(_vocabularies(folder))
    table = pq.read_table(path, partitioning=None)
    name = stream.choice(["index", "value", "value", "first_time"])
    column, n = table[name], len(table)
    changed: dict[str, Any] = {
        "all null": pa.nulls(n, column.type),
        "one null": pa.array([None, *column.to_pylist()[1:]], column.type),
        "all equal": pa.array(column.to_pylist()[:1] * n, column.type),
        "as text": pa.array([str(each) for each in column.to_pylist()]),
        "as numbers": pa.array([0.5] * n),
        "as lists": pa.array([[1]] * n),
        "reversed": column.take(pa.array(range(n)[::-1])),
        "shorter": None,
        "without it": None,
    }
    what = stream.choice(list(changed))
    if what == "shorter":
        table = table.slice(0, n // 2)
    elif what == "without it":
        table = table.drop([name])
    else:
        table = table.set_column(table.schema.get_field_index(name), name, changed[what])
    pq.write_table(table, path)
    return f"{path.name}: {name} {what}"


DAMAGES: tuple[Damage, ...] = (
    *(flip_bytes, flip_data, cut_off, remove_file, halve, double, add_dimension, shuffle),
    *(set_huge, set_huge, set_near, set_near, set_nan, set_dtype, swap_tensors, remove_tensor),
    *(edit_config, edit_config, edit_config, edit_sizes, edit_vocabulary, edit_vocabulary),
)


def damaged_copy(models: Path, folder: Path, seed: int) -> str:
    """Copy a model and damage the copy; return how. Each kind of damage has its turn."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(models, folder)
    return DAMAGES[seed % len(DAMAGES)](folder, random.Random(seed))


def answer(folder: Path) -> str:
    """Load a model and ask for recommendations; return its error, or FINITE.

    Raises:
        Exception: what a user would see as a traceback, or wrong scores.
    """
    try:
        recommender = Recommender.load(folder)
        for items in ([3], [1, 2, 3, 4, 5, 6, 7, 8, 9], [14, 99, 14], [0]):
            events = raw_events(items).select(list(recommender.column_types))
            found = recommender.recommend_after(events, 5, cold_start="model")
            assert found, "no recommendations"
            assert np.isfinite([score for _, score in found]).all(), f"scores {found}"
        if recommender.stored.config.model.architecture == "memory":
            recommender.explain(events, [item for item, _ in found])
    except DayaheadError as error:
        return f"{type(error).__name__}: {error}"
    return FINITE


def _vocabularies(folder: Path) -> list[str]:
    paths = sorted((folder / "vocabulary").iterdir())
    return [path.relative_to(folder).as_posix() for path in paths]


def _kind(tensor: torch.Tensor) -> str:
    if tensor.dtype == torch.bool:
        return "b"
    return "f" if tensor.is_floating_point() else "i"


def _set(tensor: torch.Tensor, stream: random.Random, value: float) -> torch.Tensor:
    changed = tensor.flatten().clone()
    changed[[stream.randrange(len(changed)) for _ in range(stream.choice([1, 10]))]] = value
    return changed.view(tensor.shape)


def _change(
    folder: Path,
    stream: random.Random,
    what: str,
    change: Callable[[torch.Tensor], torch.Tensor],
    kinds: str = "fib",
) -> str:
    tensors = load_file(folder / TENSORS)
    names = [n for n in sorted(tensors) if _kind(tensors[n]) in kinds and tensors[n].dim()]
    name = stream.choice([name for name in names if len(tensors[name])])
    # Indices are few among the tensors of a network, and decide where memory is read.
    indices = [each for each in names if _kind(tensors[each]) == "i" and len(tensors[each])]
    if "i" in kinds and indices and stream.random() < 1 / 2:
        name = stream.choice(indices)
    tensors[name] = change(tensors[name])
    _save(folder, tensors)
    return f"{name} {what}"


def _save(folder: Path, tensors: dict[str, torch.Tensor]) -> None:
    save_file(tensors, folder / TENSORS)


def _leaves(value: Any, path: tuple[Any, ...] = ()) -> Any:
    parts = value.items() if isinstance(value, dict) else enumerate(value)
    for key, each in parts:
        yield (*path, key)
        if isinstance(each, dict | list):
            yield from _leaves(each, (*path, key))


def main(models: Path, seeds: range) -> None:
    """Write a line of JSON for each seed, and one before the model is tried, which may be fatal."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    folder = models.with_name("damaged")
    for seed in seeds:
        _report(seed, damaged_copy(models, folder, seed))
        try:
            _report(seed, answer(folder))
        except Exception:  # noqa: BLE001 - whatever it is, the test shows it
            _report(seed, traceback.format_exc())


def _report(seed: int, said: str) -> None:
    sys.stdout.write(json.dumps([seed, said]) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), range(int(sys.argv[2]), int(sys.argv[3])))
