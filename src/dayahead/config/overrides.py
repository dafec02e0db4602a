"""Values of settings as `dvc exp run -S` takes them."""

import json
from typing import Any


def override_text(value: Any) -> str:  # noqa: ANN401
    """Write a value as Hydra reads it, without a blank at which a shell would split it."""
    if isinstance(value, list):
        return f"[{','.join(map(override_text, value))}]"
    if isinstance(value, dict):
        return f"{{{','.join(f'{key}:{override_text(part)}' for key, part in value.items())}}}"
    return value if isinstance(value, str) else json.dumps(value)
