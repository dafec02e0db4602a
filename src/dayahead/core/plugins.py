"""Baselines, backbones, losses and metrics that are not ours.

An installed package declares them as entry points in its pyproject.toml, in the groups of `GROUPS`;
params.yaml and saved models then use the names. Baselines, backbones and losses may also be named
`module:name`, of a Python file in the current folder. Only such code is imported: a model folder
from elsewhere cannot name any other, nor what it brings itself.
"""

import re
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Literal

from dayahead.core.errors import ConfigError, described
from dayahead.core.fingerprints import fingerprint, sha256_of
from dayahead.core.suggestions import did_you_mean

Kind = Literal["baseline", "backbone", "loss", "metric"]
GROUPS: Mapping[Kind, str] = {
    "baseline": "dayahead.baselines",
    "backbone": "dayahead.backbones",
    "loss": "dayahead.losses",
    "metric": "dayahead.metrics",
}
CLASSES: Final = ("baseline", "backbone")
"""Kinds that are classes; the others are functions."""


@cache
def plugins(kind: Kind) -> Mapping[str, EntryPoint]:
    """Return the entry points of this kind by their names; nothing is imported.

    Raises:
        ConfigError: two packages declare the same name.
    """
    found: dict[str, EntryPoint] = {}
    for each in entry_points(group=GROUPS[kind]):
        other = found.setdefault(each.name, each)
        if other.value != each.value:
            raise ConfigError(
                f"{kind} {each.name}: {_package(other)} and {_package(each)} both declare it as an "
                f"entry point of {GROUPS[kind]}; uninstall one of them, or rename it there"
            )
    return found


def is_plugin(kind: Kind, name: str) -> bool:
    """Return whether a package declares this name, or a module of the project's folder has it.

    Raises:
        ConfigError: the module is not there, or cannot be imported.
    """
    return name in plugins(kind) or (names_module(name) and _kind_of(name) == kind)


def load_plugin(kind: Kind, name: str) -> Any:  # noqa: ANN401
    """Import the class or function that an entry point names, or a module of the project's folder.

    Raises:
        ConfigError: no package declares it, it cannot be imported, or it is a class where a
            function is expected.
    """
    found = _of_project(name) if names_module(name) else _declared(kind, name)
    if kind not in CLASSES and isinstance(found, type):
        raise ConfigError(f"{kind} {name}: expected a function, found {found!r}; name a function")
    return found


def _declared(kind: Kind, name: str) -> Any:  # noqa: ANN401
    """Import what an entry point names."""
    declared = plugins(kind)
    if name not in declared:
        close = did_you_mean(name, declared)
        raise ConfigError(
            f"{kind} {name}: no installed package declares it as an entry point of {GROUPS[kind]}"
            f"{f' ({close})' if close else ''}; install the package, or choose another {kind}"
        )
    found = declared[name]
    try:
        return found.load()
    except Exception as error:  # noqa: BLE001  # whatever the other package's modules raise
        raise ConfigError(
            f"{kind} {name}: the entry point {found.value} of {_package(found)} cannot be loaded "
            f"({described(error)}); fix that package and install it again, or choose another {kind}"
        ) from None


def plugin_sources(chosen: Iterable[tuple[Kind, str]]) -> dict[str, str]:
    """Return a hash of the source and the version of each of these that is a plugin."""
    return {
        f"{kind} {name}": _source(plugins(kind).get(name) or _entry_point(name))
        for kind, name in chosen
        if is_plugin(kind, name)
    }


def names_module(name: str) -> bool:
    """Return whether a name is `module:name`, of a Python file in the current folder."""
    return re.fullmatch(r"[^\W\d]\w*:[^\W\d]\w*", name) is not None


def _entry_point(name: str) -> EntryPoint:
    return EntryPoint(name, name, "")


def _kind_of(name: str) -> Kind:
    """Return the kind of a class or function, by its methods: core imports no base class."""
    found = _of_project(name)
    if not isinstance(found, type):
        return "loss"
    return "baseline" if hasattr(found, "method_scorer") else "backbone"


def _of_project(name: str) -> Any:  # noqa: ANN401
    """Import a class or function of a Python file in the current folder.

    Folders of modules, and all in a model folder, are refused: they may come from elsewhere.

    Raises:
        ConfigError: there is no such file or name, or it cannot be imported.
    """
    module, _, attribute = name.partition(":")
    file = Path.cwd() / f"{module}.py"
    if str(file.parent) not in sys.path:
        sys.path.append(str(file.parent))  # not first: no file there takes the place of a package
    spec = find_spec(module)
    if spec is None or spec.origin != str(file) or (file.parent / "model.safetensors").exists():
        raise ConfigError(
            f"{name}: no {file}; write it under a name that no installed package has, and "
            f"`git add` it, for runs in a copy of the project have what Git knows. What an "
            f"installed package has is chosen by the name of its entry point"
        )
    try:
        return _entry_point(name).load()
    except Exception as error:  # noqa: BLE001  # whatever the module raises
        known = did_you_mean(attribute, vars(sys.modules.get(module, object)))
        raise ConfigError(
            f"{name}: cannot be loaded ({described(error)}); {known or f'correct {module}'}"
        ) from None


def _source(found: EntryPoint) -> str:
    """Hash the modules of the entry point's package, or its module where that stands alone."""
    spec = find_spec(found.module.partition(".")[0])
    folders = [Path(each) for each in (spec.submodule_search_locations if spec else None) or ()]
    files = {
        f"{n}/{path.relative_to(folder).as_posix()}": sha256_of(path)
        for n, folder in enumerate(folders)
        for path in sorted(folder.rglob("*.py"))
    }
    if not folders and spec and spec.origin:
        files[""] = sha256_of(Path(spec.origin))
    version = found.dist.version if found.dist else None
    return fingerprint({"files": files, "version": version, "value": found.value})


def _package(found: EntryPoint) -> str:
    return found.dist.name if found.dist else "an unnamed package"
