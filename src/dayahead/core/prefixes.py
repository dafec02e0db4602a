"""Prefixes of names, which tell the parts of a state apart."""

from collections.abc import Mapping
from typing import TypeVar

Value = TypeVar("Value")


def with_prefix(values: Mapping[str, Value], prefix: str) -> dict[str, Value]:
    """Select the values whose names have a prefix, and remove it."""
    return {n.removeprefix(prefix): each for n, each in values.items() if n.startswith(prefix)}
