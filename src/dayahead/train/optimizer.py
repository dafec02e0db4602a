"""Optimizers whose parameters may grow, and the learning rate within a window."""

import math

from torch import nn

from dayahead.config.params import TrainingConfig
from dayahead.model.embeddings import with_rows
from dayahead.train.adagrad import Adagrad
from dayahead.train.adamw import DeferredAdamW

Optimizer = DeferredAdamW | Adagrad

MOMENTS = {"exp_avg", "exp_avg_sq", "sum", "velocity"}
"""Names of AdamW's and Adagrad's state that has the shape of its parameter."""


def build_optimizer(model: nn.Module, config: TrainingConfig) -> Optimizer:
    """Return Adagrad, or AdamW (Loshchilov and Hutter 2019).

    AdamW does not decay biases, norms and the mask, Adagrad nothing.
    """
    wanted = [p for p in model.parameters() if p.requires_grad]
    if config.optimizer == "adagrad":
        return Adagrad(wanted, lr=config.learning_rate, momentum=config.momentum)
    # Parameters of one dimension are biases, norms and the mask.
    groups = [
        {"params": [p for p in wanted if p.dim() > 1], "weight_decay": config.weight_decay},
        {"params": [p for p in wanted if p.dim() <= 1], "weight_decay": 0.0},
    ]
    return DeferredAdamW(groups, lr=config.learning_rate)


def replace_grown(optimizer: Optimizer, before: dict[str, nn.Parameter], model: nn.Module) -> None:
    """Replace old parameters by their grown versions; the state of new rows is zero.

    AdamW's bias correction counts the steps of old rows, so new rows start with steps larger than
    the learning rate, which helps them (docs/protocol.md).
    """
    for name, new in model.named_parameters():
        old = before[name]
        if new is old:
            continue
        for group in optimizer.param_groups:
            group["params"] = [new if p is old else p for p in group["params"]]
        state = optimizer.state.pop(old, None)
        if state:
            for key in MOMENTS & state.keys():
                state[key] = with_rows(state[key], len(new))
                # `with_rows` leaves them uninitialised.
                state[key][len(old) :] = 0
            optimizer.state[new] = state


def set_learning_rate(
    optimizer: Optimizer, config: TrainingConfig, step: int, n_steps: int
) -> None:
    """Set the rate of step `step` (the first is 0) of a window's `n_steps`."""
    for group in optimizer.param_groups:
        group["lr"] = config.learning_rate * rate_factor(config, step, n_steps)


def rate_factor(config: TrainingConfig, step: int, n_steps: int) -> float:
    """Return the fraction of the learning rate at a step of a window.

    The same as transformers' get_{constant,linear,cosine}_schedule_with_warmup, but stateless: the
    rate restarts with each window, so it depends on the step alone.
    """
    if step < config.warmup_steps:
        return step / config.warmup_steps
    progress = (step - config.warmup_steps) / max(1, n_steps - config.warmup_steps)
    if config.schedule == "linear":
        return 1.0 - progress
    if config.schedule == "cosine":
        return 0.5 * (1.0 + math.cos(2.0 * math.pi * config.cosine_cycles * progress))
    return 1.0
