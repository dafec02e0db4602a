"""Which leaves of params.yaml a stage reads, found in its source and the modules it imports.

A small type inference over the syntax trees: parameters, fields and properties annotated with a
class of `dayahead.config.params` (or with a class that holds one) are followed to the attribute
taken from them. A whole object given to `asdict` and the like counts as every leaf it holds.
"""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Literal, get_args, get_origin

from dayahead.config import params, training

WHOLE = frozenset(
    {"asdict", "astuple", "vars", "flattened", "to_json", "dump_python", "dump_json", "repr", "str"}
)
SECTIONS = {f.name: f.type.__name__ for f in fields(params.Params)}


def all_leaves(section: str) -> frozenset[str]:
    """`model` -> `model.architecture`, `model.catalogue`, ...; `dataset` -> itself."""
    cls = getattr(params, SECTIONS.get(section, ""), None)
    if not is_dataclass(cls):
        return frozenset({section})
    return frozenset(f"{section}.{f.name}" for f in fields(cls))


def settled_leaves() -> frozenset[str]:
    """Leaves with one legal value: written down for the reader, nothing for code to ask."""
    classes = {section: getattr(params, name, None) for section, name in SECTIONS.items()}
    return frozenset(
        f"{section}.{f.name}"
        for section, cls in classes.items()
        if is_dataclass(cls)
        for f in fields(cls)
        if get_origin(f.type) is Literal and len(get_args(f.type)) == 1
    )


@dataclass
class Names:
    """What the modules at hand declare: members of classes and results of functions."""

    members: dict[str, dict[str, str]] = field(default_factory=dict)
    """Class -> attribute or property -> class of its value."""
    results: dict[str, str] = field(default_factory=dict)
    """Function -> class of what it returns."""
    bodies: dict[tuple[str, str], ast.FunctionDef] = field(default_factory=dict)
    """(Class, property) -> its definition."""
    whole: frozenset[str] = WHOLE
    """Functions that read all of what they are given."""


def leaves_read(files: Iterable[Path], *, one_by_one: bool = False) -> frozenset[str]:
    """Every leaf read in these files, as `section.key`; whole objects unless `one_by_one`."""
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in files]
    settings = [Path(module.__file__).read_text(encoding="utf-8") for module in (params, training)]
    names = _declared([*trees, *map(ast.parse, settings)])
    names.whole = frozenset() if one_by_one else WHOLE
    found: set[str] = set()
    for tree in trees:
        for function, owner in _functions(tree):
            found |= _read_in(function, owner, names)
    return frozenset(found)


def _declared(trees: list[ast.Module]) -> Names:
    names = Names()
    known = {
        node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
    }
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                names.members[node.name] = dict(_members(node, known))
                names.bodies |= {
                    (node.name, item.name): item
                    for item in node.body
                    if isinstance(item, ast.FunctionDef) and _is_property(item)
                }
            elif isinstance(node, ast.FunctionDef) and (cls := _class_in(node.returns, known)):
                names.results[node.name] = cls
    return names


def _members(node: ast.ClassDef, known: set[str]) -> Iterator[tuple[str, str]]:
    for item in ast.walk(node):
        match item:
            case ast.AnnAssign(target=ast.Name(id=name) | ast.Attribute(attr=name)):
                yield name, _class_in(item.annotation, known)
            case ast.FunctionDef(name=name) if _is_property(item):
                yield name, _class_in(item.returns, known)
            case ast.FunctionDef(name="__init__"):
                yield from _kept(item, known)


def _kept(init: ast.FunctionDef, known: set[str]) -> Iterator[tuple[str, str]]:
    """`self.model = model` where `model` is an annotated parameter."""
    typed = _arguments(init, known)
    for node in ast.walk(init):
        match node:
            case ast.Assign(targets=[ast.Attribute(attr=name)], value=ast.Name(id=value)):
                yield name, typed.get(value, "")


def _is_property(node: ast.FunctionDef) -> bool:
    return any(
        isinstance(name, ast.Name) and name.id in {"property", "cached_property"}
        for name in node.decorator_list
    )


def _class_in(annotation: ast.expr | None, known: set[str]) -> str:
    nodes = ast.walk(annotation) if annotation else ()
    return next((n.id for n in nodes if isinstance(n, ast.Name) and n.id in known), "")


def _arguments(function: ast.FunctionDef, known: Iterable[str]) -> dict[str, str]:
    arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    return {a.arg: cls for a in arguments if (cls := _class_in(a.annotation, set(known)))}


def _functions(
    tree: ast.AST, owner: str = "", outer: tuple[ast.FunctionDef, ...] = ()
) -> Iterator[tuple[tuple[ast.FunctionDef, ...], str]]:
    """Every function with the functions around it, outermost first, and its class."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef):
            yield (*outer, node), owner
            yield from _functions(node, owner, (*outer, node))
        else:
            name = node.name if isinstance(node, ast.ClassDef) else owner
            yield from _functions(node, name, outer)


def _read_in(chain: tuple[ast.FunctionDef, ...], owner: str, names: Names) -> set[str]:
    typed = {"self": owner} if owner else {}
    for function in chain:
        typed |= _arguments(function, names.members)
    for node in ast.walk(chain[-1]):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)]) if cls := _class_of(
                node.value, typed, names
            ):
                typed[name] = cls
    found: set[str] = set()
    for node in ast.walk(chain[-1]):
        found |= _read_by(node, typed, names)
    return found


def _read_by(node: ast.AST, typed: dict[str, str], names: Names) -> set[str]:
    match node:
        case ast.Attribute(attr=attr):
            return _taken(_class_of(node.value, typed, names), attr, names)
        case ast.Call(func=ast.Name(id=called) | ast.Attribute(attr=called)) if (
            called in names.whole
        ):
            given = (_class_of(argument, typed, names) for argument in node.args)
            return {leaf for cls in given for leaf in _held(cls, names)}
    return set()


def _taken(cls: str, attr: str, names: Names) -> set[str]:
    """Leaves that `attr` of an object of class `cls` stands for, if any."""
    if cls == "Params" and names.members[cls].get(attr) not in SECTIONS.values():
        return set(all_leaves(attr)) if attr in SECTIONS else set()
    for section, name in SECTIONS.items():
        if name == cls:
            body = names.bodies.get((cls, attr))
            leaf = f"{section}.{attr}"
            known = {leaf} & all_leaves(section)
            return _read_in((body,), cls, names) if body else known
    return set()


def _held(cls: str, names: Names) -> set[str]:
    """Every leaf an object of class `cls` holds, through the objects it holds."""
    sections = set(SECTIONS) if cls == "Params" else set()
    met, ahead = set(), {cls}
    while ahead:
        met |= (now := ahead)
        sections |= {section for section, name in SECTIONS.items() if name in now}
        ahead = {inner for name in now for inner in names.members.get(name, {}).values()} - met
    return {leaf for section in sections for leaf in all_leaves(section)}


def _class_of(node: ast.expr, typed: dict[str, str], names: Names) -> str:
    match node:
        case ast.Name(id=name):
            return typed.get(name, "")
        case ast.Attribute(value=value, attr=attr):
            return names.members.get(_class_of(value, typed, names), {}).get(attr, "")
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
            return name if name in names.members else names.results.get(name, "")
    return ""
