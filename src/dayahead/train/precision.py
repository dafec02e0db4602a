"""Precision of the matrix products of a fit: bfloat16 where the device has instructions for it."""

import torch

from dayahead.config.params import TrainingConfig
from dayahead.core.errors import ConfigError
from dayahead.distributed.process import Process


def uses_bfloat16(config: TrainingConfig, process: Process) -> bool:
    """Return whether the matrix products of a fit are bfloat16 on this process."""
    if config.precision == "auto":
        return process.multiplies_bfloat16
    return config.precision == "bfloat16"


def check_bfloat16(architecture: str, process: Process) -> None:
    """Raise ConfigError if the device cannot compute this architecture in bfloat16."""
    is_cpu = process.device.type == "cpu"
    if architecture == "lstm" and is_cpu and not torch.cpu.get_capabilities().get("avx512_f"):
        raise ConfigError(
            "params.yaml: training.precision: bfloat16: an lstm needs a CPU with AVX-512 for it, "
            "and this one has none; set training.precision to auto or float32, or "
            "model.architecture to gru"
        )
