"""Baselines, backbones and losses of other installed packages, by their entry points.

A package declares them in its pyproject.toml, in the groups `dayahead.baselines`,
`dayahead.backbones` and `dayahead.losses`; params.yaml and saved models then use the names. Only
code declared there is imported: a model folder from elsewhere cannot name any other code.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from dayahead.core.errors import ConfigError
from dayahead.core.fingerprints import fingerprint, sha256_of

Kind = Literal["baseline", "backbone", "loss"]
GROUPS: Mapping[Kind, str] = {
    "baseline": "dayahead.baselines",
    "backbone": "dayahead.backbones",
    "loss": "dayahead.losses",
}


@cache
def plugins(kind: Kind) -> Mapping[str, EntryPoint]:
    """Return the entry points of this kind by their names; nothing is imported."""
    return {each.name: each for each in entry_points(group=GROUPS[kind])}


def load_plugin(kind: Kind, name: str) -> Any:  # noqa: ANN401
    """Import the class or function that an entry point names.

    Raises:
        ConfigError: it cannot be imported.
    """
    found = plugins(kind)[name]
    try:
        return found.load()
    except Exception as error:  # noqa: BLE001  # whatever the other package's modules raise
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise ConfigError(
            f"{kind} {name}: the entry point {found.value} of {_package(found)} cannot be loaded "
            f"({reason}); fix that package and install it again, or choose another {kind}"
        ) from None


def plugin_sources(chosen: Iterable[tuple[Kind, str]]) -> dict[str, str]:
    """Return a hash of the package's source for each of these that is a plugin."""
    return {
        f"{kind} {name}": _source(plugins(kind)[name].module)
        for kind, name in chosen
        if name in plugins(kind)
    }


def _source(module: str) -> str:
    """Hash all modules of the package that contains a module, or the module if it has none."""
    spec = find_spec(module.partition(".")[0])
    if spec is None or spec.origin is None:
        return ""
    origin = Path(spec.origin)
    files = sorted(origin.parent.rglob("*.py")) if spec.submodule_search_locations else [origin]
    return fingerprint(
        {each.relative_to(origin.parent).as_posix(): sha256_of(each) for each in files}
    )


def _package(found: EntryPoint) -> str:
    return found.dist.name if found.dist else "an unnamed package"
