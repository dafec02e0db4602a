"""The trainer of each kind of model."""

from collections.abc import Mapping

from dayahead.config.params import TrainingConfig
from dayahead.distributed.process import Process
from dayahead.model.memory_recommender import MemoryRecommender
from dayahead.model.model import CountingModel, Model
from dayahead.model.next_item import NextItemModel
from dayahead.train.memory_trainer import MemoryTrainer
from dayahead.train.trainers import CountingTrainer, GradientTrainer

Trainer = CountingTrainer | GradientTrainer | MemoryTrainer
"""Fits a model on one window after another; `rank` is the one whose rows of a batch `fit` takes."""


def trainer_of(
    model: Model, config: TrainingConfig, ends: Mapping[str, int], process: Process
) -> Trainer:
    """Return the trainer of a model.

    Args:
        model: the model to fit.
        config: training of a network.
        ends: end of each window, microseconds since 1970.
        process: this process.
    """
    if isinstance(model, MemoryRecommender):
        model.divide_among(process)
        if model.network is not None:
            return MemoryTrainer(model, model.network, ends, config, process)
    if isinstance(model, NextItemModel):
        return GradientTrainer(model, config, process)
    if isinstance(model, CountingModel):
        return CountingTrainer(model, ends)
    raise TypeError(f"{type(model).__name__}: no trainer is registered for it")
