"""Which settings a fit depends on: some have an effect only beside certain others."""

from dataclasses import asdict
from typing import Any

from dayahead.config.params import Params

COUNTED = {
    "model": {"architecture", "catalogue", "decay"},
    "training": {"protocol", "history", "carry_model", "loader", "seed"},
}
"""All that a counting baseline reads; the seed draws the train sessions that are evaluated."""
WITHOUT_EFFECT = {"model.pretrained_items", "training.fit_last", "training.precision"}
"""Cache keys hold the content of that file and the precision found on this machine."""


def effective_settings(params: Params) -> dict[str, dict[str, Any]]:
    """Return the sections that shape a fit, without the settings that have no effect on it."""
    left_out = WITHOUT_EFFECT | {
        name for name, is_used in _conditions(params).items() if not is_used
    }
    found = {}
    for section in ("model", "task", "loss", "training"):
        values = asdict(getattr(params, section))
        read = COUNTED.get(section, set()) if params.model.is_counted else set(values)
        found[section] = {
            name: value
            for name, value in values.items()
            if name in read and f"{section}.{name}" not in left_out
        }
    return found


def _conditions(params: Params) -> dict[str, bool]:
    """Whether each setting that not all studies use is used by this one."""
    task, loss, training = params.task.name, params.loss, params.training
    is_sliding = training.protocol == "sliding"
    return {
        "model.decay": params.model.architecture == "transitions",
        "model.unknown_rate": params.model.catalogue == "grow",
        "task.mlm_probability": task in {"mlm", "rtd"},
        "task.plm_probability": task == "plm",
        "task.plm_max_span": task == "plm",
        "task.rtd_replacements": task == "rtd",
        "task.rtd_generator_weight": task == "rtd",
        "task.rtd_discriminator_weight": task == "rtd",
        "loss.negatives": loss.is_sampled,
        "loss.negatives_of_batch": loss.is_sampled,
        "loss.popularity_exponent": loss.is_sampled and loss.negatives > 0,
        "loss.gbce_calibration": loss.name == "gbce",
        "loss.bpr_max_regularisation": loss.name == "bpr_max",
        "training.history": is_sliding,
        "training.carry_model": is_sliding,
        "training.carry_optimizer": not training.starts_afresh,
        "training.cosine_cycles": training.schedule == "cosine",
        "training.epochs": training.steps_per_window is None,
    }
