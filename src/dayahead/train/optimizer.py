"""AdamW over a model whose tables grow, and its learning rate within a window."""

import math
from collections.abc import Mapping

from torch import Tensor, nn
from torch.nn import Parameter
from torch.optim import AdamW

from dayahead.config.params import TrainingConfig

MOMENTS = ("exp_avg", "exp_avg_sq")


def build_optimizer(model: nn.Module, config: TrainingConfig) -> AdamW:
    """AdamW (Loshchilov and Hutter 2019); vectors (biases, norms, the mask) do not decay."""
    wanted = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in wanted if p.dim() > 1], "weight_decay": config.weight_decay},
        {"params": [p for p in wanted if p.dim() <= 1], "weight_decay": 0.0},
    ]
    return AdamW(groups, lr=config.learning_rate, fused=True)


def follow_growth(optimizer: AdamW, before: dict[str, Parameter], model: nn.Module) -> None:
    """Hand a grown parameter its predecessor's place and moments; new rows start from zero."""
    for name, new in model.named_parameters():
        old = before[name]
        if new is old:
            continue
        for group in optimizer.param_groups:
            group["params"] = [new if p is old else p for p in group["params"]]
        state = optimizer.state.pop(old, None)
        if state:
            optimizer.state[new] = state | {
                key: _with_zero_rows(state[key], len(new)) for key in MOMENTS
            }


def moments_of(optimizer: AdamW, model: nn.Module) -> dict[str, Tensor]:
    """What the optimiser knows of each parameter, as <parameter>.<moment>, on the CPU."""
    return {
        f"{name}.{key}": value.cpu().contiguous()
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
    }


def restore_moments(optimizer: AdamW, model: nn.Module, moments: Mapping[str, Tensor]) -> None:
    """Give a fresh optimiser what `moments_of` took of one over the same parameters."""
    parameters = dict(model.named_parameters())
    for name, moment in moments.items():
        parameter, _, key = name.rpartition(".")
        of_parameter = optimizer.state[parameters[parameter]]
        of_parameter[key] = moment.to(parameters[parameter].device, copy=True)


def set_learning_rate(optimizer: AdamW, config: TrainingConfig, step: int, n_steps: int) -> None:
    """Set the rate of step `step` (0 the first) of a window's `n_steps`."""
    for group in optimizer.param_groups:
        group["lr"] = config.learning_rate * rate_share(config, step, n_steps)


def rate_share(config: TrainingConfig, step: int, n_steps: int) -> float:
    """Share of the learning rate that a step of a window gets.

    As transformers' get_constant_, get_linear_ and get_cosine_schedule_with_warmup, the three of
    Transformers4Rec, but without a state of their own: a window's steps are all there is to know.
    """
    if step < config.warmup_steps:
        return step / config.warmup_steps
    progress = (step - config.warmup_steps) / max(1, n_steps - config.warmup_steps)
    if config.schedule == "linear":
        return 1.0 - progress
    if config.schedule == "cosine":
        return 0.5 * (1.0 + math.cos(2.0 * math.pi * config.cosine_cycles * progress))
    return 1.0


def _with_zero_rows(moment: Tensor, n_rows: int) -> Tensor:
    padding = (0, 0) * (moment.dim() - 1) + (0, n_rows - len(moment))
    return nn.functional.pad(moment, padding)
