"""Names of runs: their main settings in a few words."""

import re

from dayahead.config.baselines import MEMORY, is_baseline
from dayahead.config.params import Params
from dayahead.config.windows import WindowConfig

_GENERATED = re.compile(r"[a-z]{5}-[a-z]{4}")
"""Pattern of the names that DVC generates for experiments: an adjective and a noun."""


def run_name(params: Params, experiment: str | None = None) -> str:
    """Return a name such as `gpt2/clm d128 L2 seed 1, g1`, the same for the same settings.

    What differs most comes first, because MLflow's pages cut names at their end. The name of a DVC
    experiment comes before all where a user gave it one.
    """
    is_given = bool(experiment) and not _GENERATED.fullmatch(str(experiment))
    data = " ".join([params.dataset, *_window(params.window)])
    return f"{f'{experiment}: ' if is_given else ''}{' '.join(_model(params))}, {data}"


def _window(window: WindowConfig) -> list[str]:
    """Length of the windows, unless it is a day."""
    length = window.unit if window.length == 1 else f"{window.length}-{window.unit}"
    return [] if length == "day" else [length]


def _model(params: Params) -> list[str]:
    model, architecture = params.model, params.model.architecture
    if is_baseline(architecture):
        return [architecture]
    seed = f"seed {params.training.seed}"
    if not model.has_network:
        return [architecture, seed]
    network = f"{MEMORY}+{model.network}" if architecture == MEMORY else architecture
    return [f"{network}/{params.task.name}", f"d{model.d_model}", f"L{model.n_layer}", seed]
