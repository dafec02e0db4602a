"""YAML files into frozen dataclasses; all errors are reported at once."""

import json
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from io import StringIO
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_type_hints
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import to_json
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from dayahead.config.removed import REMOVED
from dayahead.core.durations import microseconds_of
from dayahead.core.errors import ConfigError
from dayahead.core.suggestions import did_you_mean

T = TypeVar("T")

STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
_LONGEST = 300
"""Characters of a value that is shown beside an error."""


def _check_zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # unknown; not a valid name; a folder of zones
        raise ValueError(
            f"unknown time zone {name!r}; expected an IANA name such as Europe/Oslo"
        ) from None
    return name


def _check_duration(value: str) -> str:
    microseconds_of(value)
    return value


def _check_finite(values: dict[str, Any]) -> dict[str, Any]:
    json.dumps(values, allow_nan=False)
    return values


Auto = Literal["auto"]
Duration = Annotated[str, AfterValidator(_check_duration)]
FiniteMapping = Annotated[dict[str, Any], AfterValidator(_check_finite)]
TimeZone = Annotated[str, AfterValidator(_check_zone)]
Seed = Annotated[int, Field(ge=0, lt=1 << 63)]
# Bounds far above useful values: a typing error must neither hang the machine nor fill its memory.
Positive = Annotated[float, Field(gt=0, le=1e6)]
NonNegative = Annotated[float, Field(ge=0, le=1e6)]
Fraction = Annotated[float, Field(ge=0, lt=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Length = Annotated[int, Field(ge=2, le=1 << 16)]
Size = Annotated[int, Field(ge=1, le=1 << 16)]
SizeOrZero = Annotated[int, Field(ge=0, le=1 << 16)]
Count = Annotated[int, Field(ge=1, le=10_000_000)]
CountOrZero = Annotated[int, Field(ge=0, le=10_000_000)]


def read_yaml(path: Path) -> Any:  # noqa: ANN401
    """Read one YAML 1.2 file as DVC does (`1e-3` is a number, `no` is text)."""
    try:
        return parse_yaml(path.read_text(encoding="utf-8"), str(path))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; expected the settings here") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not readable as YAML: {error}") from None


def parse_yaml(text: str, where: str) -> Any:  # noqa: ANN401
    """Parse YAML 1.2.

    DVC's parser, written in C, accepts less and does not show the line of an error.
    """
    try:
        return YAML(typ="safe", pure=True).load(StringIO(text))
    except (YAMLError, ValueError) as error:  # ValueError: an invalid time
        raise ConfigError(f"{where}: not readable as YAML: {error}") from None


def _json(value: object, where: str) -> bytes:
    try:
        return to_json(value)
    except ValueError as error:  # a lone surrogate ("\\ud800"), or a YAML alias to itself
        raise ConfigError(f"{where}: a value cannot be read: {error}") from None


def validated(cls: type[T], value: object, where: str) -> T:
    """Check `value` against the dataclass `cls`.

    Raises:
        ConfigError: one line per error, `where: key: rule (got value)`.
    """
    try:
        # As JSON text: only there does pydantic's strict mode build nested dataclasses and tuples.
        return TypeAdapter(cls).validate_json(_json(value, where))
    except ValidationError as error:
        lines = []
        for each in error.errors(include_url=False):
            key = ".".join(str(part) for part in each["loc"]) or "(top level)"
            value = repr(each["input"])
            # A URL may hold secrets; a whole file says nothing.
            is_shown = each["type"] != "missing" and "://" not in value and len(value) <= _LONGEST
            found = f" (got {value})" if is_shown else ""
            if each["type"] == "unexpected_keyword_argument":
                found += f"; {REMOVED.get(key) or _suggestion(str(each['loc'][-1]), cls)}"
            rule = each["msg"].removeprefix("Value error, ")
            lines.append(f"{where}: {key}: {rule}{found}")
        raise ConfigError("\n".join(lines)) from None


def _suggestion(key: str, cls: type) -> str:
    found = did_you_mean(key, {*_keys_of(cls)})
    return found or "no setting has such a name"


def _keys_of(kind: object) -> Iterator[str]:
    """Yield the names of all settings of a dataclass and of those that it is made of."""
    if isinstance(kind, type) and is_dataclass(kind):
        yield from (each.name for each in fields(kind))
        parts = tuple(get_type_hints(kind).values())
    else:
        parts = get_args(kind)
    for part in parts:
        yield from _keys_of(part)
