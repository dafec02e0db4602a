"""Fits of trainers in one of several processes: weights, and how much is summed at once."""

from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import save_file

from dayahead.core.files import write_json
from dayahead.distributed.process import Process
from dayahead.model.next_item import NextItemModel
from dayahead.train.batches import LoadedBatches, Sessions, shuffled_rows
from dayahead.train.trainers import GradientTrainer
from support.tiny_settings import loss_config, model_config, task_config, training_config

N_ITEMS = 5000
N_SESSIONS = 17
"""In batches of 8: the last one has a single session, and none for the second process."""
LOSS = {"name": "sampled_softmax", "negatives": 10}
FITS: dict[str, tuple[dict[str, Any], str, dict[str, Any]]] = {
    "adamw": ({"architecture": "gpt2"}, "clm", {}),
    "untied": ({"architecture": "gpt2", "tie_weights": False}, "clm", {}),
    "mlm": ({"architecture": "xlnet", "swap_noise": 0.5}, "mlm", {}),
    "adagrad": ({"architecture": "gpt2"}, "clm", {"optimizer": "adagrad"}),
}
"""Settings of model, task and training by the name of a fit."""


def fit_all(process: Process, folder: Path) -> None:
    """Write weights and sizes of what is summed, of each fit under its name and this rank."""
    n_summed: list[int] = []
    all_reduce = dist.all_reduce

    def noted(values: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        n_summed.append(values.numel())
        return all_reduce(values, *args, **kwargs)

    dist.all_reduce = noted
    try:
        _fit_all(process, folder, n_summed)
    finally:
        dist.all_reduce = all_reduce


def _fit_all(process: Process, folder: Path, n_summed: list[int]) -> None:
    for name, settings in FITS.items():
        n_summed.clear()
        trainer = _trainer(process, *settings)
        for window in ("first", "second"):
            trainer.fit(window, _epochs(process), lambda _: None)
        file = folder / f"{name}-{process.rank.world_size}-{process.rank.index}"
        save_file(dict(trainer.model.state_dict()), file.with_suffix(".safetensors"))
        write_json(file.with_suffix(".json"), max(n_summed, default=0))


def _trainer(
    process: Process, model: dict[str, Any], task: str, training: dict[str, Any]
) -> GradientTrainer:
    sections = model_config(**model), task_config(name=task), loss_config(**LOSS)
    built = NextItemModel(*sections, categoricals={}, numbers={}, max_length=8, seed=1)
    # In float32 AdamW makes whole steps of the rounding errors of gradients that are 0.
    trainer = GradientTrainer(built.double(), training_config(**training), process)
    trainer.grow({"item_id": N_ITEMS})
    assert trainer.model.sampler is not None
    trainer.model.sampler.set_counts(torch.arange(N_ITEMS))
    if "optimizer" not in training:
        for group in trainer.optimizer.param_groups:
            group["eps"] = 1e-12
    return trainer


def _epochs(process: Process) -> list[LoadedBatches]:
    draw = torch.Generator().manual_seed(0)
    offsets = torch.arange(N_SESSIONS + 1) * 4
    items = torch.randint(2, N_ITEMS, (int(offsets[-1]),), generator=draw)
    sessions = Sessions({"item_id": items}, offsets)
    return [
        LoadedBatches(sessions, shuffled_rows(sessions.lengths, 8, seed), process.rank)
        for seed in range(2)
    ]
