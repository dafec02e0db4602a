"""The house rules no linter knows: sizes, plain text, no defaults in settings, no unpickling."""

import ast
import re
import subprocess
import sys
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path

import pytest

from dayahead.config import params
from dayahead.config.params import Params

ROOT = Path(__file__).parents[2]
PACKAGE = sorted((ROOT / "src").rglob("*.py"))
SCRIPTS = sorted((ROOT / "stages").glob("*.py"))
BENCHMARKS = sorted((ROOT / "benchmarks").rglob("*.py"))
OTHERS = sorted([*(ROOT / "tests").rglob("*.py"), *BENCHMARKS])
TEXTS = [*ROOT.glob("*.md"), *ROOT.glob("*.yaml"), *ROOT.glob("*/*.yaml"), ROOT / "Makefile"]
UNPICKLE = frozenset({"pickle", "dill", "joblib", "cloudpickle", "shelve", "marshal"})
RUN_TEXT = frozenset({"eval", "exec", "compile", "__import__"})


def each(files):
    return pytest.mark.parametrize("file", files, ids=lambda f: str(f.relative_to(ROOT)))


@cache
def tree_of(file):
    return ast.parse(file.read_text(encoding="utf-8"))


@cache
def lines_of(file):
    return file.read_text(encoding="utf-8").splitlines()


@cache
def functions(file):
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return [node for node in ast.walk(tree_of(file)) if isinstance(node, kinds)]


@each([*PACKAGE, *OTHERS])
def test_a_file_has_at_most_400_lines(file):
    assert len(lines_of(file)) <= 400


@each(SCRIPTS)
def test_a_stage_script_has_at_most_40_lines(file):
    assert len(lines_of(file)) <= 40


@each([*PACKAGE, *SCRIPTS, *OTHERS])
def test_a_function_has_at_most_50_lines(file):
    sizes = {f.name: f.end_lineno - f.lineno + 1 for f in functions(file)}
    assert {name: size for name, size in sizes.items() if size > 50} == {}


@each([*PACKAGE, *SCRIPTS, *OTHERS, *TEXTS])
def test_text_is_ascii(file):
    numbered = enumerate(lines_of(file), start=1)
    assert [number for number, line in numbered if not line.isascii()] == []


@each([*PACKAGE, *SCRIPTS])
def test_a_module_says_what_it_is_for(file):
    assert ast.get_docstring(tree_of(file))


def test_nothing_is_called_utils():
    every = [*PACKAGE, *SCRIPTS, *OTHERS]
    assert [
        f for f in every if f.stem.strip("_") in {"util", "utils", "helpers", "misc", "common"}
    ] == []


@each([*PACKAGE, *SCRIPTS])
def test_imports_are_absolute_and_at_the_top(file):
    relative = [
        n.lineno for n in ast.walk(tree_of(file)) if isinstance(n, ast.ImportFrom) and n.level
    ]
    hidden = [
        node.lineno
        for function in functions(file)
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    assert (relative, hidden) == ([], [])


@each([*PACKAGE, *SCRIPTS, *BENCHMARKS])
def test_nothing_runs_what_a_file_or_a_text_says(file):
    found = [n.lineno for n in ast.walk(tree_of(file)) if runs_text(n) or unpickles(n)]
    assert found == []


def runs_text(node):
    return (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in RUN_TEXT
    )


def unpickles(node):
    match node:
        case ast.Import(names=names):
            return any(name.name.split(".")[0] in UNPICKLE for name in names)
        case ast.ImportFrom(module=str(module)):
            return module.split(".")[0] in UNPICKLE
        case ast.Call(func=ast.Attribute(attr="load", value=ast.Name(id="torch")), keywords=given):
            return not any(k.arg == "weights_only" and is_true(k.value) for k in given)
        case ast.keyword(arg="allow_pickle", value=value):
            return is_true(value)
    return False


def is_true(node):
    return isinstance(node, ast.Constant) and node.value is True


@pytest.mark.parametrize(
    "line",
    [
        "import pickle",
        "from joblib import load",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "np.load(path, allow_pickle=True)",
        "eval(text)",
    ],
)
def test_the_rule_sees_unpickling(line):
    assert any(runs_text(node) or unpickles(node) for node in ast.walk(ast.parse(line)))


@pytest.mark.parametrize(
    "line",
    [
        "from yaml import unsafe_load",
        "subprocess.run(text, shell=True)",
        "os.system(text)",
        "tarfile.open(path).extractall()",
        "tempfile.mktemp()",
        "open('/tmp/x')",
        "os.chmod(path, 0o777)",
        "requests.get(url, verify=False)",
        "pd.read_pickle(path)",
    ],
)
@pytest.mark.parametrize("place", ["src/dayahead/x.py", "stages/x.py", "benchmarks/x.py"])
def test_the_linter_sees_what_else_is_unsafe(line, place):
    modules = "os, subprocess, tarfile, tempfile, requests, pandas as pd"
    ruff = [sys.executable, "-m", "ruff", "check", "--no-cache", "--output-format", "concise"]
    command = [*ruff, "--stdin-filename", str(ROOT / place), "-"]
    source = f"import {modules}\n{line}\n"
    done = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
    assert re.search(r": (S\d\d\d|TID251) ", done.stdout), line


def sections():
    return [Params, *(kind for kind in vars(params).values() if is_dataclass(kind))]


@pytest.mark.parametrize("section", sections(), ids=lambda s: s.__name__)
def test_no_setting_has_a_default(section):
    """A default in code is a parameter that DVC cannot see."""
    body = next(
        node
        for node in tree_of(Path(params.__file__)).body
        if isinstance(node, ast.ClassDef) and node.name == section.__name__
    )
    given = [item for item in body.body if isinstance(item, ast.AnnAssign)]
    assert {item.target.id for item in given} == {f.name for f in fields(section)}
    assert [item.target.id for item in given if item.value is not None] == []
