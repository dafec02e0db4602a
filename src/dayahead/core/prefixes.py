"""Prefixes of names, which tell the parts of a state apart."""

from collections.abc import Mapping
from typing import TypeVar

Value = TypeVar("Value")


def prefixed(values: Mapping[str, Value], prefix: str) -> dict[str, Value]:
    """Put a prefix before every name; `with_prefix` takes it off again."""
    return {prefix + name: each for name, each in values.items()}


def with_prefix(values: Mapping[str, Value], prefix: str) -> dict[str, Value]:
    """Select the values whose names have a prefix, and remove it."""
    return {n.removeprefix(prefix): each for n, each in values.items() if n.startswith(prefix)}
