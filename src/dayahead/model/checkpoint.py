"""A model in a folder of its own: config.json, model.safetensors, vocabulary/."""

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from pydantic.dataclasses import dataclass as checked_dataclass
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from scipy.sparse import csr_array
from torch import Tensor

from dayahead.config.loading import STRICT, validated
from dayahead.config.params import LossConfig, ModelConfig, TaskConfig
from dayahead.core.columns import FIRST_TIME, INDEX, ITEM_ID, N_RESERVED, VALUE
from dayahead.core.errors import ConfigError, ModelFileError
from dayahead.core.files import read_json, write_json, write_parquet, written_whole
from dayahead.model.baselines import CountingModel
from dayahead.model.building import build_model
from dayahead.model.next_item import NextItemModel
from dayahead.windows.metadata import Statistics

CANDIDATES = "candidates"
WEIGHTS = "weights."
MISFITS = (ValueError, KeyError, TypeError, RuntimeError, SafetensorError, ConfigError)
"""What reading raises where a part has another content than its neighbours expect."""


@checked_dataclass(frozen=True, kw_only=True, config=STRICT)
class ModelConfigFile:
    """config.json: what it takes to build the model again and to feed it."""

    dataset: str
    window: str
    """The last window fitted."""
    model: ModelConfig
    task: TaskConfig
    loss: LossConfig
    seed: int
    sizes: dict[str, int]
    """Values held of each vocabulary."""
    first_sizes: dict[str, int]
    """Those at the first window, which sized the side embeddings."""
    statistics: Statistics
    """statistics.json of the windows, of the features read."""


@dataclass(frozen=True)
class StoredModel:
    """A model and what goes with it."""

    card: ModelConfigFile
    model: NextItemModel | CountingModel
    candidates: NDArray[np.int32]
    """Catalogue indices it may recommend, ascending."""
    vocabularies: Mapping[str, pa.Table]
    """index, value and first_time of each vocabulary, the values held only."""


def save_model(folder: Path, stored: StoredModel, weights: Mapping[str, Tensor]) -> None:
    """Write the folder anew, with the model's whole weights; config.json comes last."""
    shutil.rmtree(folder, ignore_errors=True)
    for column, table in stored.vocabularies.items():
        write_parquet(folder / "vocabulary" / f"{column}.parquet", table)
    tensors = {CANDIDATES: torch.from_numpy(stored.candidates)}
    tensors |= {WEIGHTS + name: tensor for name, tensor in weights.items()}
    with written_whole(folder / "model.safetensors") as temporary:
        write_tensors(temporary, tensors)
    statistics = stored.card.statistics.as_json()
    write_json(folder / "config.json", asdict(stored.card) | {"statistics": statistics})


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write safetensors without a copy in memory.

    Raises:
        OSError: as of any file; safetensors itself tells of a full disk by an error of its own.
    """
    try:
        save_file(dict(tensors), path)
        path.chmod(0o644)  # it puts a file of mode 0600 in the place of the one named
    except SafetensorError as error:
        number = re.search(r"os error (\d+)", str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from None


def load_model(folder: Path) -> StoredModel:
    """Read a folder that `save_model` wrote.

    Raises:
        ModelFileError: a part is missing or damaged, or the parts do not belong together.
    """
    try:
        card = validated(
            ModelConfigFile, read_json(folder / "config.json"), str(folder / "config.json")
        )
        tensors = load_file(folder / "model.safetensors")
        vocabularies = {
            column: pq.read_table(
                folder / "vocabulary" / f"{column}.parquet",
                columns=[INDEX, VALUE, FIRST_TIME],
                partitioning=None,
            )
            for column in card.sizes
        }
        model = build_model(
            card.model, card.task, card.loss, card.statistics, card.first_sizes, card.seed
        )
        weights = {
            name.removeprefix(WEIGHTS): tensor
            for name, tensor in tensors.items()
            if name.startswith(WEIGHTS)
        }
        restore_weights(model, card.sizes, weights)
        stored = StoredModel(card, model, tensors[CANDIDATES].numpy(), vocabularies)
        _check_parts(stored)
    except (OSError, *MISFITS) as error:
        raise ModelFileError(
            f"{folder}: no whole model ({error}); expected config.json, model.safetensors and "
            f"vocabulary/ as `dvc repro` leaves them in models/"
        ) from None
    return stored


def _check_parts(stored: StoredModel) -> None:
    values = {column: len(table) for column, table in stored.vocabularies.items()}
    n_items = stored.model.n_items
    if values != stored.card.sizes or values[ITEM_ID] != n_items:
        raise ValueError(
            f"the card holds {stored.card.sizes} values, vocabulary/ {values}, the model "
            f"{n_items} items"
        )
    rows = stored.candidates - N_RESERVED
    if ((rows < 0) | (rows >= n_items)).any():
        raise ValueError(f"candidates beyond the {n_items} items held")


def weights_of(model: NextItemModel | CountingModel) -> dict[str, Tensor]:
    """All that a model has learned or counted, by name, on the CPU."""
    if isinstance(model, NextItemModel):
        return {name: tensor.cpu().contiguous() for name, tensor in model.state_dict().items()}
    pairs = model.following.tocoo()
    return {
        "popularity": torch.from_numpy(model.popularity),
        "before": torch.from_numpy(pairs.coords[0].astype(np.int64)),
        "after": torch.from_numpy(pairs.coords[1].astype(np.int64)),
        "counts": torch.from_numpy(pairs.data),
    }


def restore_weights(
    model: NextItemModel | CountingModel, sizes: Mapping[str, int], tensors: Mapping[str, Tensor]
) -> None:
    """Give a fresh model what `weights_of` took of one that held these sizes."""
    if isinstance(model, NextItemModel):
        model.grow(dict(sizes))
        model.load_state_dict(tensors)
        model.eval()
        return
    popularity, before, after, counts = (
        tensors[name].numpy() for name in ("popularity", "before", "after", "counts")
    )
    model.popularity = popularity
    model.following = csr_array((counts, (before, after)), shape=(len(popularity),) * 2)
