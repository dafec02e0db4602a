"""What pip is configured to use here (index, wheels, certificates), as variables of uv."""

import ast
import os
import subprocess
import sys
from functools import cache

VARIABLES = {
    "index-url": "UV_DEFAULT_INDEX",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
    "proxy": "ALL_PROXY",
    "timeout": "UV_HTTP_TIMEOUT",
}
"""Where packages come from, and how."""
MORE_VARIABLES = {"extra-index-url": "UV_INDEX", "find-links": "UV_FIND_LINKS"}
"""Where else they may come from."""
SECTIONS = ("global", "install", ":env:")
"""Of pip's configuration; later ones win."""


@cache
def pip_settings() -> dict[str, str]:
    """Return pip's settings for `pip install`, of configuration files and environment variables."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = []
    for line in listed.splitlines():
        name, _, value = line.partition("=")
        section, _, key = name.rpartition(".")
        if section in SECTIONS:
            found.append((SECTIONS.index(section), key, str(ast.literal_eval(value))))
    return {key: " ".join(value.split()) for _, key, value in sorted(found)}


def uv_environment(with_more: bool = True) -> dict[str, str]:
    """Return the environment for uv: ours, and pip's settings where uv has none of its own.

    Args:
        with_more: also look where else packages may come from, as pip does.
    """
    settings = pip_settings()
    names = VARIABLES | (MORE_VARIABLES if with_more else {})
    carried = {name: settings[key] for key, name in names.items() if settings.get(key)}
    if "UV_FIND_LINKS" in carried:
        carried["UV_FIND_LINKS"] = carried["UV_FIND_LINKS"].replace(" ", ",")
    if "UV_INDEX" in carried:
        carried["UV_INDEX_STRATEGY"] = "unsafe-best-match"  # pip's; hashes say what is accepted
    return {"UV_SYSTEM_CERTS": "true", **carried, **os.environ}
