"""Models in a folder: config.json, model.safetensors, vocabulary/."""

import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import get_type_hints

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from pydantic.dataclasses import dataclass as checked_dataclass
from torch import Tensor

from dayahead.config.loading import STRICT, validated
from dayahead.config.model import ModelSections
from dayahead.core.columns import (
    FIRST_TIME,
    ID_TYPES,
    INDEX,
    ITEM_ID,
    N_RESERVED,
    TIMESTAMP,
    VALUE,
)
from dayahead.core.errors import ConfigError, ModelFileError
from dayahead.core.files import read_json, write_json, write_parquet
from dayahead.core.prefixes import prefixed, with_prefix
from dayahead.model.building import build_model
from dayahead.model.content_keys import check_content
from dayahead.model.embeddings import GrowingEmbedding
from dayahead.model.inputs import vocabulary_columns
from dayahead.model.model import Model
from dayahead.model.size_checks import weights_bounded
from dayahead.model.state_checks import check_candidates, check_shapes, check_values
from dayahead.model.stored_items import FILE as ITEMS
from dayahead.model.stored_items import StoredItems
from dayahead.model.tensor_files import AnyTensor, TensorFile, write_tensors
from dayahead.windows.folder import vocabulary_path
from dayahead.windows.metadata import Statistics

CONFIG, TENSORS = "config.json", "model.safetensors"
CANDIDATES = "candidates"
POPULARITY = "popularity"
WEIGHTS = "weights."
READ_ERRORS = (
    *(OSError, ValueError, LookupError, TypeError, RuntimeError, ArithmeticError),
    *(AttributeError, pa.ArrowException, ConfigError),
)
"""Errors raised on reading where a file is missing or damaged, or does not fit the others."""


@checked_dataclass(frozen=True, kw_only=True, config=STRICT)
class FittedOn:
    """The last window of a fit."""

    dataset: str
    window: str
    """The last window fitted."""
    end: int
    """End of that window, microseconds since 1970."""


@checked_dataclass(frozen=True, kw_only=True, config=STRICT)
class ModelConfigFile(ModelSections, FittedOn):
    """config.json: all that is needed to build the model again and to encode its input."""

    seed: int
    sizes: dict[str, int]
    """Size of each vocabulary."""
    first_sizes: dict[str, int]
    """Sizes at the first window, which determine those of the side features' embeddings."""
    known: dict[str, int]
    """Number of values of each vocabulary known in the next window's files. With catalogue full the
    model holds later ones too; these are read as unknown, except for a session's own items."""
    statistics: Statistics
    """statistics.json of the windows, for the model's features."""


@dataclass(frozen=True)
class StoredModel:
    """The content of a model folder."""

    config: ModelConfigFile
    model: Model
    candidates: NDArray[np.int32]
    """Vocabulary indices that may be recommended, ascending."""
    popularity: NDArray[np.int64]
    """Events of each candidate in the train sessions of the last fitted window."""
    vocabularies: Mapping[str, pa.Table]
    """index, value and first_time of each vocabulary, up to its size."""
    items: StoredItems | None = None
    """What the data set's table says of items, where there is one."""

    def candidates_at(self, time: int) -> NDArray[np.int32]:
        """Return the candidates that are available at a time, microseconds since 1970."""
        if self.items is None:
            return self.candidates
        return self.candidates[self.items.table.is_available(self.candidates, time)]

    def without_withdrawn(self) -> "StoredModel":
        """Return the model without candidates that were withdrawn before its last window's end."""
        found = None if self.items is None else self.items.table.availability(self.candidates)
        if found is None:
            return self
        kept = found[1] > self.config.end
        return replace(self, candidates=self.candidates[kept], popularity=self.popularity[kept])


def save_model(folder: Path, stored: StoredModel, weights: Mapping[str, AnyTensor]) -> None:
    """Replace the folder, with the `weights_of` the model; config.json comes last.

    With sharded weights it is a collective: rank 0 writes, while the others `send_rows`.
    """
    shutil.rmtree(folder, ignore_errors=True)
    for column, table in stored.vocabularies.items():
        write_parquet(vocabulary_path(folder, column), table)
    if stored.items is not None:
        write_parquet(folder / ITEMS, stored.items.rows)
    tensors: dict[str, AnyTensor] = {
        CANDIDATES: torch.from_numpy(stored.candidates),
        POPULARITY: torch.from_numpy(stored.popularity),
    }
    tensors |= prefixed(weights, WEIGHTS)
    write_tensors(folder / TENSORS, tensors)
    statistics = stored.config.statistics.as_json()
    write_json(folder / CONFIG, asdict(stored.config) | {"statistics": statistics})


def load_model(folder: Path, *, to_fit: bool = True) -> StoredModel:
    """Read a folder written by `save_model`.

    Without `to_fit` the state that only further fits need stays on the disk, such as the examples
    that `memory` replays.

    Raises:
        ModelFileError: a file is missing or damaged, or the files do not belong together.
    """
    if not folder.is_dir():
        raise ModelFileError(
            f"{folder}: no such folder; expected a model, as `dvc repro` writes it to models/ of "
            f"the project"
        )
    try:
        check_content(folder)
        path = folder / CONFIG
        file = validated(ModelConfigFile, read_json(path), str(path))
        _check_features(file.statistics)
        columns = vocabulary_columns(file.model, file.statistics)
        for sizes in (file.sizes, file.known):
            if sizes.keys() != {*columns}:
                raise ValueError(f"{path}: sizes of {[*sizes]}, expected of {[*columns]}")
        vocabularies = {column: _vocabulary(folder, file, column) for column in columns}
        items = None
        if file.statistics.items is not None:
            items = StoredItems.read(folder, file.statistics, vocabularies)
        with TensorFile.open(folder / TENSORS) as tensors:
            stored = _read_model(file, tensors, vocabularies, to_fit=to_fit)
        if items is not None:
            if missing := {*stored.model.vectors} - {*items.rows.column_names}:
                raise ValueError(f"{folder / ITEMS}: no column {', '.join(sorted(missing))}")
            stored.model.know_items(items.table)
            stored = replace(stored, items=items)
    except (*READ_ERRORS, ModelFileError) as error:
        other = _other_settings(folder)
        raise ModelFileError(
            f"{folder}: another version of Dayahead has saved this model ({CONFIG} {other}); fit "
            f"it again (`dvc repro`, or `dayahead nightly`), or use that version"
            if other
            else f"{folder}: not a complete model ({' '.join(str(error).split())}); expected "
            f"config.json, model.safetensors and vocabulary/ as `dvc repro` writes them to "
            f"models/, or `dvc pull` fetches what was pushed. A model that another version has "
            f"written must be fitted again, and one of a package of your own needs it installed"
        ) from None
    return stored


def _other_settings(folder: Path) -> str:
    """Say in which settings a config.json differs from those of this version; empty if in none."""
    sections = {
        name: {field.name for field in fields(kind)}
        for name, kind in get_type_hints(ModelConfigFile).items()
        if is_dataclass(kind) and kind is not Statistics
    }
    try:
        found = read_json(folder / CONFIG)
        given = {name: {*found[name]} for name in sections if name in found}
        is_model = "model" in given and all(isinstance(found[name], dict) for name in given)
    except READ_ERRORS:
        return ""
    lacks = [name for name in sections if name not in given]
    lacks += [f"{name}.{key}" for name in given for key in sorted(sections[name] - given[name])]
    has = [f"{name}.{key}" for name in given for key in sorted(given[name] - sections[name])]
    parts = [("lacks", lacks), ("has the unknown", has)]
    return "; ".join(f"{what} {', '.join(names)}" for what, names in parts if names and is_model)


def _check_features(statistics: Statistics) -> None:
    """Check the columns of each feature, and that the lists fitted for it are equally long."""
    for name, feature in statistics.features.items():
        is_cyclic, fitted = feature.kind in {"hour", "weekday"}, feature.newest
        columns = [f"{name}_sin", f"{name}_cos"] if is_cyclic else [name]
        n_knots, n_means = len(fitted.knots or ()), len(fitted.means or ())
        is_ranked = n_knots > 0 or not fitted.n
        if feature.columns != columns or n_means != len(fitted.values or ()) or not is_ranked:
            raise ValueError(
                f"config.json: statistics.features.{name}: expected the columns {columns}, a mean "
                f"for each value, and knots where n is above 0"
            )


def _vocabulary(folder: Path, file: ModelConfigFile, column: str) -> pa.Table:
    """Read a vocabulary and compare it with config.json."""
    path = vocabulary_path(folder, column)
    table = pq.read_table(path, columns=[INDEX, VALUE, FIRST_TIME], partitioning=None)
    statistics = file.statistics
    type_ = statistics.item_type if column == ITEM_ID else statistics.features[column].type
    if type_ is None or len(table) != file.sizes[column]:
        raise ValueError(
            f"config.json lists {file.sizes} values, vocabulary/ has {{{column!r}: {len(table)}}} "
            f"of type {type_}"
        )
    expected = {INDEX: pa.int32(), VALUE: ID_TYPES[type_], FIRST_TIME: TIMESTAMP}
    found = dict(zip(table.column_names, table.schema.types, strict=True))
    if found != expected or any(table[name].null_count for name in expected):
        raise ValueError(f"{path}: expected columns of {expected} without nulls, found {found}")
    indices = np.arange(N_RESERVED, N_RESERVED + len(table))
    if not np.array_equal(table[INDEX].to_numpy(), indices):
        raise ValueError(f"{path}: {INDEX}: expected {N_RESERVED}, {N_RESERVED + 1}, ...")
    if pc.count_distinct(table[VALUE]).as_py() != len(table):
        raise ValueError(f"{path}: {VALUE}: expected each value once")
    return table


def _read_model(
    file: ModelConfigFile,
    tensors: TensorFile,
    vocabularies: Mapping[str, pa.Table],
    *,
    to_fit: bool,
) -> StoredModel:
    layouts = with_prefix(tensors.layouts, WEIGHTS)
    with weights_bounded(layouts):
        model = build_model(file, file.statistics, file.first_sizes, file.seed)
    check_shapes(model, layouts)
    unread = () if to_fit else tuple(WEIGHTS + prefix for prefix in model.read_by_fits_alone)
    read = {name: tensors.read(name) for name in tensors.layouts if not name.startswith(unread)}
    restore_weights(model, file.sizes, with_prefix(read, WEIGHTS))
    candidates, popularity = read[CANDIDATES], read[POPULARITY]
    check_candidates(candidates, popularity, model.n_items)
    return StoredModel(file, model, candidates.numpy(), popularity.numpy(), vocabularies)


def weights_of(model: Model) -> dict[str, Tensor]:
    """The model's state by tensor name, on the CPU."""
    return {name: tensor.cpu().contiguous() for name, tensor in model.state_dict().items()}


def restore_weights(model: Model, sizes: Mapping[str, int], weights: Mapping[str, Tensor]) -> None:
    """Grow a new model to these vocabulary sizes and load what `weights_of` returned.

    Raises:
        ModelFileError: the weights are damaged, or those of another model.
    """
    network = model.network
    modules = () if network is None else network.modules()
    tables = [each for each in modules if isinstance(each, GrowingEmbedding)]
    for table in tables:  # drawing initial rows takes longer than reading them
        table.is_restored = True
    # Once before growing: sizes and weights of different models fail before memory is allocated.
    check_shapes(model, weights)
    model.grow(dict(sizes))
    for table in tables:
        table.is_restored = False
    check_shapes(model, weights, is_grown=True)
    check_values(model, weights)
    model.load_state_dict({name: tensor.cpu() for name, tensor in weights.items()})
    if network is not None:
        network.eval()
