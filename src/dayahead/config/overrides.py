"""Values of settings as `dvc exp run -S` takes them."""

import json
import re
from collections.abc import Mapping
from typing import Any

# Hydra reads these as text even without quotes. Dates are among them for readability.
_PLAIN = re.compile(
    r"(?!(?:null|true|false|nan|inf)$)[a-z_/][\w/.@+-]*|\d{4}-\d\d-\d\d(?:T\d\d)?",
    re.ASCII | re.IGNORECASE,
)
_TO_ESCAPE = re.compile(r"(\\*)('|\Z)")
"""In quotes, a backslash stands for itself unless a quote follows."""


def overrides_of(name: str, value: Any) -> list[str]:  # noqa: ANN401
    """Return the overrides that set a setting; Hydra sets the keys of a mapping one by one."""
    if isinstance(value, Mapping):
        return [f"++{name}.{key}={_text(part)}" for key, part in value.items()]
    return [f"{name}={_text(value)}"]


def _text(value: Any) -> str:  # noqa: ANN401
    """Write a value as Hydra reads it, without a blank between its parts."""
    if isinstance(value, list | tuple):
        return f"[{','.join(map(_text, value))}]"
    if isinstance(value, Mapping):
        return f"{{{','.join(f'{key}:{_text(part)}' for key, part in value.items())}}}"
    if not isinstance(value, str):
        return json.dumps(value)
    if _PLAIN.fullmatch(value):
        return value
    escaped = _TO_ESCAPE.sub(lambda found: found[1] * 2 + found[2].replace("'", "\\'"), value)
    return f"'{escaped}'"
