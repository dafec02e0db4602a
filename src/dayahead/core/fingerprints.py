"""Hashes of files, settings and source, from which cache keys are made."""

import ast
import hashlib
import json
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).parents[1]
package_version = cache(version)
"""Returns the version of an installed package, and keeps it: each look-up parses a file."""


def sha256_of(path: Path) -> str:
    """Return the hex sha256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fingerprint(value: Mapping[str, Any]) -> str:
    """Return the hex sha256 of a JSON-able mapping, whatever the order of its keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


@cache
def source_fingerprint(*rooms: str) -> str:
    """Return the hex sha256 of the source of some rooms (folders of src/dayahead).

    It is taken over syntax trees without docstrings and comments, so that editing prose or
    formatting discards no cached result. Keys name every room that a result depends on;
    tests/pipeline/test_contract.py compares them with the import graph.
    """
    code = {}
    for room in rooms:
        for path in (PACKAGE / room).rglob("*.py"):
            tree = _syntax(ast.parse(path.read_text(encoding="utf-8")))
            code[path.relative_to(PACKAGE).as_posix()] = repr(tree)
    return fingerprint(code)


def _syntax(node: object) -> object:
    """Return a syntax tree as tuples, without its positions and docstrings."""
    if isinstance(node, ast.AST):
        # Newer versions of Python have more fields, which are empty here.
        parts = ((name, getattr(node, name, None)) for name in node._fields)
        given = [(name, _syntax(part)) for name, part in parts if part not in (None, [])]
        return type(node).__name__, *given
    if isinstance(node, list):
        return [_syntax(each) for each in node if not _is_docstring(each)]
    return node


def _is_docstring(node: object) -> bool:
    """Whether a string stands alone: the docstring of a module, class, function or attribute."""
    value = node.value if isinstance(node, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)
