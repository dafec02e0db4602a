"""Marks of settings that not every fit reads: cache keys hold only what is read.

A section's class names the models that read it in READ_BY; single settings are marked in their
types, `Annotated[float, ReadBy(...), ReadIf(...)]`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ReadBy:
    """The models that read a setting, in place of those that read the rest of its section."""

    holds: Callable[[Any], bool]
    """Whether a model of this `ModelConfig` does."""


@dataclass(frozen=True)
class ReadIf:
    """The other settings with which a setting has an effect."""

    holds: Callable[[Any], bool]
    """Whether it has one in these `Params`."""


def by(*names: str) -> ReadBy:
    """Return the mark of a setting that these architectures read."""
    return ReadBy(lambda model: model.architecture in names)


EVERY_MODEL = ReadBy(lambda _: True)
NETWORKS = ReadBy(lambda model: model.has_network)
