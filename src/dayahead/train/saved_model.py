"""A saved model evaluated on a window that came after it."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from dayahead.core.columns import SESSION_ID, VALUE
from dayahead.core.errors import ConfigError, ModelFileError
from dayahead.distributed.process import Process, Rank
from dayahead.metrics.tables import WindowResult, window_result
from dayahead.model.checkpoint import StoredModel
from dayahead.train.batches import MemoryBatches, Sessions, sorted_rows
from dayahead.train.data_loading import columns_read
from dayahead.train.evaluate import evaluate
from dayahead.windows.folder import Role, Window, WindowFolder

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
    _check_same_data(stored, folder)
    chosen = _later_window(folder, stored.config.window, window)
    config = stored.config.model
    columns = [SESSION_ID, *columns_read(config, folder.statistics)]
    table = folder.read(chosen, split, columns)
    sessions = Sessions.from_table(table.drop([SESSION_ID]), config.n_past_read)
    process = Process(Rank(0, 1), torch.device("cpu"))
    batches = MemoryBatches(sessions, sorted_rows(sessions.lengths, BATCH_SIZE), process.rank)
    n_targets = np.ones(len(table), np.int64)
    ranked = evaluate(stored.model, batches, n_targets, stored.candidates, process)
    ranks = ranked.as_window_ranks(table[SESSION_ID], n_targets, "last")
    return window_result(chosen.name, ranks, cutoffs, None, {})


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


def _check_same_data(stored: StoredModel, folder: WindowFolder) -> None:
    """Raise ModelFileError if indices or scales of the windows are not those of the model."""
    features = stored.config.model.features
    for column, table in stored.vocabularies.items():
        values = folder.vocabulary(column)[VALUE].slice(0, len(table)).combine_chunks()
        if not values.equals(table[VALUE].combine_chunks()):
            raise ModelFileError(
                f"{folder.folder}: the model was fitted with another vocabulary of {column}; "
                f"expected the windows that it was fitted on, or the same ones of a longer log"
            )
    if folder.statistics.select(features) != stored.config.statistics:
        raise ModelFileError(
            f"{folder.folder}: the model's features were fitted to other statistics; expected the "
            f"windows that it was fitted on, or the same ones of a longer log"
        )
