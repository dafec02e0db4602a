"""The trainer of each kind of model."""

from collections.abc import Mapping
from functools import singledispatch

from dayahead.config.params import TrainingConfig
from dayahead.distributed.process import Process
from dayahead.model.memory_recommender import MemoryRecommender
from dayahead.model.model import CountingModel, Model
from dayahead.model.next_item import NextItemModel
from dayahead.train.memory_trainer import MemoryTrainer
from dayahead.train.trainers import CountingTrainer, GradientTrainer, Trainer

Ends = Mapping[str, int]


@singledispatch
def trainer_of(model: Model, config: TrainingConfig, ends: Ends, process: Process) -> Trainer:
    """Return the trainer of a model; a class that is not registered gets that of its base class.

    Args:
        model: the model to fit.
        config: training of a network.
        ends: end of each window, microseconds since 1970.
        process: this process.
    """
    raise TypeError(f"{type(model).__name__}: no trainer is registered for it")


@trainer_of.register
def _(model: CountingModel, config: TrainingConfig, ends: Ends, process: Process) -> Trainer:
    return CountingTrainer(model, ends)


@trainer_of.register
def _(model: NextItemModel, config: TrainingConfig, ends: Ends, process: Process) -> Trainer:
    return GradientTrainer(model, config, process)


@trainer_of.register
def _(model: MemoryRecommender, config: TrainingConfig, ends: Ends, process: Process) -> Trainer:
    model.divide_among(process)
    if model.network is None:
        return CountingTrainer(model, ends)
    return MemoryTrainer(model, model.network, ends, config, process)
