"""Hashes of files, settings and source, from which cache keys are made."""

import ast
import hashlib
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).parents[1]


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
            tree = _WithoutDocstrings().visit(ast.parse(path.read_text(encoding="utf-8")))
            code[path.relative_to(PACKAGE).as_posix()] = ast.dump(tree)
    return fingerprint(code)


class _WithoutDocstrings(ast.NodeTransformer):
    """Removes strings that stand alone: docstrings of modules, classes, functions, attributes."""

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        is_text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if is_text else node
