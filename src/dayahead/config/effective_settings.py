"""Which settings a fit depends on: some have an effect only in combination with others."""

from dataclasses import asdict
from typing import Any

from dayahead.config.baselines import ALWAYS_FIRST, MEMORY, READS, is_baseline
from dayahead.config.model import LOSSES
from dayahead.config.params import Params

OF_BASELINES = {
    "model": {
        *("architecture", "network", "catalogue"),
        *("remind", "remind_weight", "remind_scale"),
    },
    "events": {"weights"},
    "training": {"protocol", "history", "carry_model", "loader", "seed"},
}
"""Settings of these sections that baselines read; the seed samples the train sessions evaluated."""
OF_PLUGINS = ("model.config", "training.batch_size")
"""Settings of a baseline of another package: its arguments, and what its batches depend on."""
OF_MEMORY = {"features", "past_length"}
"""Settings of the section model that memory reads too, with a network or without."""
SECTIONS = ("model", "task", "loss", "neighbours", "linear", "memory", "live", "events", "training")
WITHOUT_EFFECT = {"model.pretrained_items", "training.fit_last", "training.precision"}
"""Instead of two of these, cache keys hold the content of the file and the precision in use."""


def effective_settings(params: Params) -> dict[str, dict[str, Any]]:
    """Return the sections that shape a fit, without the settings that have no effect on it."""
    left_out = WITHOUT_EFFECT | {
        name for name, is_used in _conditions(params).items() if not is_used
    }
    found = {}
    for section in SECTIONS:
        values = asdict(getattr(params, section))
        found[section] = {
            name: values[name]
            for name in values
            if _is_read(section, name, params) and f"{section}.{name}" not in left_out
        }
    return found


def _is_read(section: str, name: str, params: Params) -> bool:
    """Whether the architecture reads the setting at all."""
    architecture = params.model.architecture
    if is_baseline(architecture):
        own = READS.get(architecture, OF_PLUGINS)
        return f"{section}.{name}" in own or name in OF_BASELINES.get(section, set())
    if section in {"neighbours", "linear"}:
        return False
    if architecture != MEMORY:
        return section not in {"memory", "live"}
    if section in {"memory", "live", "events"} or (section == "model" and name in OF_MEMORY):
        return True
    return params.model.has_network or name in OF_BASELINES.get(section, set())


def _conditions(params: Params) -> dict[str, bool]:
    """Whether each setting that not all studies use is used by this one."""
    task, loss, training = params.task.name, params.loss, params.training
    architecture = params.model.architecture
    is_plugin_loss = loss.name not in LOSSES  # it is given the whole section
    has_reminders = is_baseline(architecture) and architecture != ALWAYS_FIRST
    is_boosted = has_reminders and params.model.remind == "boost"
    is_sliding = training.protocol == "sliding"
    return {
        "model.network": architecture == MEMORY,
        "model.decay": is_baseline(architecture),
        "model.remind": has_reminders,
        "model.remind_weight": is_boosted,
        "model.remind_scale": is_boosted,
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
        "loss.gbce_calibration": loss.name == "gbce" or is_plugin_loss,
        "loss.logq": loss.name == "sampled_softmax" or is_plugin_loss,
        "loss.bpr_max_regularisation": loss.name == "bpr_max" or is_plugin_loss,
        "loss.elu": loss.name == "bpr_max" or is_plugin_loss,
        "neighbours.push_reminders": params.model.remind != "none",
        "memory.head_width": params.memory.head == "mlp",
        "live.session_gap": params.live.tick != 0,
        "training.history": is_sliding,
        "training.carry_model": is_sliding,
        "training.carry_optimizer": not training.starts_afresh,
        "training.weight_decay": training.optimizer == "adamw",
        "training.momentum": training.optimizer == "adagrad",
        "training.cosine_cycles": training.schedule == "cosine",
        "training.epochs": training.steps_per_window is None,
    }
