"""Which names `model.architecture` and `model.network` may have; checked before anything runs."""

import re
from collections.abc import Collection
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from dayahead.config.baselines import BASELINES, NAMED_TRANSFORMERS, OURS, OWN_NETWORKS
from dayahead.core.errors import ConfigError
from dayahead.core.plugins import is_plugin, names_module, plugins
from dayahead.core.suggestions import did_you_mean

RECIPES: Final = ("sasrec", "gsasrec", "esasrec", "bert4rec")
"""Names of the literature for a backbone with a loss and sizes: the presets models/<name>."""
NO_NETWORK: Final = "none"
RETIRED: Final = ("transfo-xl", "transfoxl", "transformer-xl")


def known_architecture(name: str) -> str:
    """Return the name of an architecture.

    Raises:
        ValueError: there is none of this name.
    """
    is_ours = name in OURS and name != NO_NETWORK
    try:
        is_plug_in = is_plugin("baseline", name) or is_plugin("backbone", name)
    except ConfigError as error:
        raise ValueError(str(error)) from None
    if is_ours or is_plug_in or _is_type_of_transformers(name):
        return name
    if names_module(name):
        expected = "dayahead.model.counting.Baseline or of torch.nn.Module"
        raise ValueError(f"{name}: expected a subclass of {expected}, found no class")
    raise ValueError(_unknown(name))


def known_network(name: str) -> str:
    """Return the name of a network of `memory`, which may be `none`; errors are the same."""
    return name if name == NO_NETWORK else known_architecture(name)


def _unknown(name: str) -> str:
    plain = name.lower().replace("_", "-")
    if plain in RECIPES:
        return (
            f"{name} is an architecture with a task, a loss and sizes, which are the preset "
            f"models/{plain}: dvc exp run --temp $(dayahead preset models/{plain})"
        )
    if plain in RETIRED:
        return (
            f"{name} left transformers in version 5; use xlnet with task.name: clm, which has the "
            f"same relative positions"
        )
    own: tuple[str, ...] = (*NAMED_TRANSFORMERS, *OWN_NETWORKS, *BASELINES)
    own = (*own, *plugins("baseline"), *plugins("backbone"))
    close = did_you_mean(plain, {*own, "memory", *RECIPES, *_types()}, most=3)
    return (
        f"{name} is unknown{f' ({close})' if close else ''}; expected memory, {', '.join(own)}, or "
        f"any model type of transformers that reads inputs_embeds (llama, qwen3, modernbert, mamba "
        f"...)"
    )


@cache
def _is_type_of_transformers(name: str) -> bool:
    """Return whether there is such a type; most have a folder of their name."""
    package = find_spec("transformers")
    folders = package.submodule_search_locations if package else None
    if folders and re.fullmatch(r"[\w-]{1,100}", name):
        folder = Path(folders[0], "models", name.replace("-", "_"))
        if folder.is_dir():
            return True
    return name in _types()


def _types() -> Collection[str]:
    """Return the names of all types; to import transformers, and with it torch, takes seconds."""
    from transformers import CONFIG_MAPPING

    return frozenset(CONFIG_MAPPING)
