"""A saved model evaluated on a window that came after it."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow.compute as pc
import torch

from dayahead.core.columns import ITEM_ID, SESSION_ID, VALUE
from dayahead.core.errors import ConfigError, ModelFileError
from dayahead.distributed.process import Process, Rank
from dayahead.model.checkpoint import StoredModel
from dayahead.outputs.tables import WindowRanks, WindowResult, window_result
from dayahead.train.batches import LoadedBatches, Sessions, sorted_rows
from dayahead.train.data_loading import columns_read
from dayahead.train.evaluate import evaluate
from dayahead.windows.folder import Role, Window, WindowFolder
from dayahead.windows.metadata import Statistics

BATCH_SIZE = 512
"""Sessions scored at once; no metric depends on it."""


def evaluate_saved(
    stored: StoredModel,
    windows: Path,
    window: str | None = None,
    split: Role = "test",
    cutoffs: Sequence[int] = (10, 20),
) -> WindowResult:
    """Evaluate a saved model on the last items of a window's sessions, on the CPU.

    Args:
        stored: a loaded model.
        windows: folder that preprocess wrote, with the vocabulary that the model was fitted with.
        window: name of a later window than the last one fitted; None: the one that follows it.
        split: sessions to evaluate on, as `evaluation.split`.
        cutoffs: lengths of the lists, as `evaluation.cutoffs`.

    Raises:
        ConfigError: there is no such window, or the model was fitted on it or after it.
        ModelFileError: the model belongs to another folder of windows.
        DataError: the window has no session to evaluate on, or a file is damaged.
    """
    folder = WindowFolder(windows)
    chosen = _later_window(folder, stored.config.window, window)
    ranks = saved_ranks(stored, folder, chosen, split)
    return window_result(chosen.name, ranks, cutoffs, None, {})


def saved_ranks(
    stored: StoredModel,
    folder: WindowFolder,
    window: Window,
    split: Role = "test",
    positions: Literal["last", "all"] = "last",
) -> WindowRanks:
    """Rank the targets of a window's sessions with a saved model, on the CPU.

    Raises:
        ModelFileError: the model belongs to another folder of windows.
        DataError: a file is damaged.
    """
    check_same_data(stored, folder)
    config = stored.config.model
    columns = [SESSION_ID, *columns_read(config, folder.statistics)]
    table = folder.read(window, split, columns)
    sessions = Sessions.from_table(table.drop([SESSION_ID]), config.n_past_read)
    # Later values are unknown, as they were when the model was saved.
    sessions = sessions.without_later(stored.config.known)
    process = Process(Rank(0, 1), torch.device("cpu"))
    batches = LoadedBatches(sessions, sorted_rows(sessions.lengths, BATCH_SIZE), process.rank)
    n_targets = np.ones(len(table), np.int64)
    if positions == "all":
        n_targets = pc.list_value_length(table[ITEM_ID]).to_numpy().astype(np.int64) - 1
    ranked = evaluate(stored.model, batches, n_targets, stored.candidates, process)
    return ranked.as_window_ranks(table[SESSION_ID], n_targets, positions)


def _later_window(folder: WindowFolder, fitted: str, name: str | None) -> Window:
    """Return the window of this name, or the first one after `fitted`."""
    later = [each for each in folder.windows if each.name > fitted]
    if not later:
        raise ConfigError(
            f"{folder.folder}: the model was fitted on {fitted}, and no later window is kept to "
            f"evaluate it on; add data, or fit with training.fit_last: false"
        )
    found = later[:1] if name is None else [each for each in later if each.name == name]
    if not found:
        raise ConfigError(
            f"window {name}: expected one after {fitted}, the last one that the model was fitted "
            f"on: {', '.join(each.name for each in later)}"
        )
    return found[0]


def check_same_data(stored: StoredModel, folder: WindowFolder) -> None:
    """Check that indices and scales of the windows are those of the model.

    Raises:
        ModelFileError: they differ.
    """
    for column, table in stored.vocabularies.items():
        values = folder.vocabulary(column)[VALUE].slice(0, len(table)).combine_chunks()
        if not values.equals(table[VALUE].combine_chunks()):
            raise ModelFileError(
                f"{folder.folder}: the model was fitted with another vocabulary of {column}; "
                f"expected the windows that it was fitted on, or the same ones of a longer log"
            )
    known, fitted = folder.statistics, stored.config.statistics
    features = stored.config.model.features
    if not {*features} <= known.features.keys() or _before(known, fitted) != fitted:
        raise ModelFileError(
            f"{folder.folder}: the model's features were fitted to other statistics; expected the "
            f"windows that it was fitted on, or the same ones of a longer log"
        )


def _before(known: Statistics, fitted: Statistics) -> Statistics:
    """Return `known` reduced to the features of `fitted` and the windows that these have."""
    own = {}
    for name, feature in known.select(fitted.features).features.items():
        windows = fitted.features[name].windows or {}
        shared = {key: value for key, value in (feature.windows or {}).items() if key in windows}
        own[name] = replace(feature, windows=shared or None)
    return replace(known, features=own, title=None)
