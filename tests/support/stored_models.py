"""Saved models of 30 items, written without a fit."""

import json

import numpy as np
import pyarrow as pa
import torch

from dayahead.config.baselines import BASELINES, MEMORY
from dayahead.core.columns import TIMESTAMP
from dayahead.model.checkpoint import ModelConfigFile, StoredModel, save_model, weights_of
from support.tiny_settings import (
    counted,
    model_config,
    task_config,
    tiny_model,
    tiny_params,
)
from support.window_folders import START, tiny_statistics

SIZES = {"item_id": 30, "category": 3}


def vocabulary(n_values):
    return pa.table(
        {
            "index": pa.array(range(2, n_values + 2), pa.int32()),
            "value": pa.array(range(100, n_values + 100), pa.int64()),
            "first_time": pa.array([START] * n_values, TIMESTAMP),
        }
    )


def save(folder, written):
    save_model(folder, written, weights_of(written.model))


def stored(architecture, task, **changes):
    """A model of 30 items that differs from its initial values."""
    if architecture in {*BASELINES, MEMORY}:
        model, sizes = counted(architecture, [[2, 3, 4], [2, 3]]), {"item_id": 30}
        features = ()
    else:
        model, sizes = tiny_model(architecture, task, n_items=10, **changes), SIZES
        model.grow(sizes)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.01
        features = ("category", "price")
    model_settings = model_config(architecture=architecture, features=features, **changes)
    sections = tiny_params().sections() | {"model": model_settings, "task": task_config(name=task)}
    config = ModelConfigFile(
        dataset="tiny",
        window="2026-01-03",
        end=0,
        seed=1,
        sizes=sizes,
        first_sizes=sizes,
        known=sizes,
        statistics=tiny_statistics(features, max_length=8),
        **sections,
    )
    vocabularies = {column: vocabulary(size) for column, size in sizes.items()}
    candidates = np.arange(4, 20, dtype=np.int32)
    return StoredModel(config, model, candidates, np.arange(16), vocabularies)


def edited(folder, change):
    path = folder / "config.json"
    config = json.loads(path.read_text())
    change(config)
    path.write_text(json.dumps(config))
