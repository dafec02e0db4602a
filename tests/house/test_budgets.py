"""How large the project may be: a budget refuses growth, and is lowered when something leaves."""

import ast
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import get_type_hints

import pytest

from dayahead.config.params import Params

ROOT = Path(__file__).parents[2]
TESTS = sorted((ROOT / "tests").rglob("*.py"))
LINES = {
    "src": (48_600, ["src/**/*.py"]),
    "tests": (58_000, ["tests/**/*.py"]),
    "docs": (5_500, ["README.md", "docs/**/*.md"]),
    "benchmarks": (3_200, ["benchmarks/**/*.py"]),
}
"""Folders, the lines that they may have, and the files that count."""
SETTINGS = 171
OWN_NAMES_REPLACED = 244
"""`setattr` on modules and classes of dayahead: such a test holds the code, not what it does."""
SENTENCES_MATCHED = 501
"""`match=`: such a test holds the words of an error."""


@pytest.mark.parametrize("name", LINES)
def test_lines(name):
    budget, patterns = LINES[name]
    files = [file for pattern in patterns for file in ROOT.glob(pattern)]
    assert sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files) <= budget


def test_settings():
    sections = get_type_hints(Params).values()
    assert sum(len(fields(s)) if is_dataclass(s) else 1 for s in sections) <= SETTINGS


def test_names_of_our_own_that_tests_replace():
    assert sum(replaced(tree) for tree in trees()) <= OWN_NAMES_REPLACED


def test_sentences_of_errors_that_tests_match():
    keywords = [n for tree in trees() for n in ast.walk(tree) if isinstance(n, ast.keyword)]
    assert sum(keyword.arg == "match" for keyword in keywords) <= SENTENCES_MATCHED


def trees():
    return [ast.parse(file.read_text(encoding="utf-8")) for file in TESTS]


def replaced(tree):
    """How many calls `x.setattr(...)` a module has whose object comes from dayahead."""
    nodes = list(ast.walk(tree))
    own = set()
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dayahead"):
            own |= {alias.asname or alias.name for alias in node.names}
        if isinstance(node, ast.Import):
            names = [alias.asname or alias.name for alias in node.names]
            own |= {name.split(".")[0] for name in names if name.startswith("dayahead")}
    return sum(is_replacement(node, own) for node in nodes)


def is_replacement(node, own):
    match node:
        case ast.Call(func=ast.Attribute(attr="setattr"), args=[target, *_]):
            text = ast.unparse(target).strip("'\"")
            return text.split(".")[0] in own | {"dayahead"}
    return False
