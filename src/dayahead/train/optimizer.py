"""AdamW for a model whose embeddings grow, and its learning rate within a window."""

import math
from collections.abc import Mapping

from torch import Tensor, nn
from torch.nn import Parameter
from torch.optim import AdamW

from dayahead.config.params import TrainingConfig

MOMENTS = ("exp_avg", "exp_avg_sq")
"""Names of AdamW's state that has the shape of its parameter."""


def build_optimizer(model: nn.Module, config: TrainingConfig) -> AdamW:
    """Return AdamW (Loshchilov and Hutter 2019) without weight decay of biases, norms, the mask."""
    wanted = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in wanted if p.dim() > 1], "weight_decay": config.weight_decay},
        {"params": [p for p in wanted if p.dim() <= 1], "weight_decay": 0.0},
    ]
    return AdamW(groups, lr=config.learning_rate, fused=True)


def replace_grown(optimizer: AdamW, before: dict[str, Parameter], model: nn.Module) -> None:
    """Put grown parameters in place of their old versions; the state of new rows is zero."""
    for name, new in model.named_parameters():
        old = before[name]
        if new is old:
            continue
        for group in optimizer.param_groups:
            group["params"] = [new if p is old else p for p in group["params"]]
        state = optimizer.state.pop(old, None)
        if state:
            padding = (0, 0) * (new.dim() - 1) + (0, len(new) - len(old))
            grown = {key: nn.functional.pad(state[key], padding) for key in MOMENTS}
            optimizer.state[new] = state | grown


def optimizer_state(optimizer: AdamW, model: nn.Module) -> dict[str, Tensor]:
    """Return the state of each parameter as <parameter>.<name of state>, on the CPU."""
    return {
        f"{name}.{key}": value.cpu().contiguous()
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
    }


def restore_optimizer(optimizer: AdamW, model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Load into a fresh optimizer what `optimizer_state` returned."""
    parameters = dict(model.named_parameters())
    for name, value in state.items():
        parameter, _, key = name.rpartition(".")
        held = parameters[parameter]
        optimizer.state[held][key] = value.to(held.device, copy=True)


def set_learning_rate(optimizer: AdamW, config: TrainingConfig, step: int, n_steps: int) -> None:
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
