"""House rules that no linter knows: imports, settings without defaults, no unpickling.

Each rule is one test over all files, and lists every violation.
"""

import ast
import re
import shutil
import subprocess
import sys
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import get_type_hints

from dayahead.config.params import Params

ROOT = Path(__file__).parents[2]
PACKAGE = sorted((ROOT / "src").rglob("*.py"))
SCRIPTS = sorted((ROOT / "stages").glob("*.py"))
BENCHMARKS = sorted((ROOT / "benchmarks").rglob("*.py"))
UNPICKLE = frozenset({"pickle", "dill", "joblib", "cloudpickle", "shelve", "marshal"})
RUN_TEXT = frozenset({"eval", "exec", "compile", "__import__"})


def violations(files, rule):
    """What a rule finds in each file that breaks it."""
    found = {str(file.relative_to(ROOT)): rule(file) for file in files}
    return {name: what for name, what in found.items() if what}


@cache
def nodes(file):
    """All nodes of a file's syntax tree, the module first."""
    return list(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))


def functions(file):
    return [n for n in nodes(file) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]


SLOW_IMPORTS = [
    *(ROOT / "stages").glob("*.py"),
    *(ROOT / "src" / "dayahead" / "commands").glob("*.py"),
    *(
        ROOT / "src" / "dayahead" / name
        for name in (
            "__init__.py",
            "config/architectures.py",
            "nightly/served.py",
            "serve/pyfunc.py",
            "preprocess/texts.py",
            "tracking/publication.py",
            "tracking/run_lookup.py",
            "tracking/sender.py",
            "train/streaming.py",
        )
    ),
]
"""What needs no torch, MLflow, DVC, Merlin, Dask, matplotlib or scikit-learn must not wait for it;
`import dayahead`, which every module begins with, for nothing. A stage imports after it has started
the process that sends its records, which loads MLflow meanwhile."""


def test_imports_are_absolute_and_at_the_top():
    def rule(file):
        relative = [n.lineno for n in nodes(file) if isinstance(n, ast.ImportFrom) and n.level]
        hidden = [
            node.lineno
            for function in functions(file)
            for node in ast.walk(function)
            if isinstance(node, ast.Import | ast.ImportFrom)
        ]
        return relative if file in SLOW_IMPORTS else relative + hidden

    assert violations([*PACKAGE, *SCRIPTS], rule) == {}


def test_nothing_runs_code_from_a_file_or_a_text():
    def rule(file):
        return [node.lineno for node in nodes(file) if runs_text(node) or unpickles(node)]

    assert violations([*PACKAGE, *SCRIPTS, *BENCHMARKS], rule) == {}


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


def test_the_rule_above_sees_unpickling():
    unsafe = [
        "import pickle",
        "from joblib import load",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "np.load(path, allow_pickle=True)",
        "eval(text)",
    ]

    def is_seen(line):
        return any(runs_text(node) or unpickles(node) for node in ast.walk(ast.parse(line)))

    assert [line for line in unsafe if not is_seen(line)] == []


UNSAFE = """import os, subprocess, tarfile, tempfile, requests, pandas as pd
from yaml import unsafe_load
subprocess.run(text, shell=True)
os.system(text)
tarfile.open(path).extractall()
tempfile.mktemp()
open('/tmp/x')
os.chmod(path, 0o777)
requests.get(url, verify=False)
pd.read_pickle(path)
"""


def test_the_linter_sees_what_else_is_unsafe(tmp_path):
    """In every folder of source: on each line of `UNSAFE` but the first."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    files = [tmp_path / folder / "x.py" for folder in ("src/dayahead", "stages", "benchmarks")]
    for file in files:
        file.parent.mkdir(parents=True)
        file.write_text(UNSAFE)
    ruff = [sys.executable, "-m", "ruff", "check", "--no-cache", "--output-format", "concise"]
    done = subprocess.run(ruff, cwd=tmp_path, capture_output=True, text=True, check=False)
    found = re.findall(r"^(\S+):(\d+):\d+: (?:S\d\d\d|TID251) ", done.stdout, re.MULTILINE)
    numbers = range(2, len(UNSAFE.splitlines()) + 1)
    expected = {(str(file.relative_to(tmp_path)), str(n)) for file in files for n in numbers}
    assert expected - set(found) == set()


def test_no_setting_has_a_default():
    """A default in code is a parameter that DVC cannot see."""
    sections = [Params, *filter(is_dataclass, get_type_hints(Params).values())]
    assert len(sections) > 15
    for section in sections:
        defaults = [(each.default, each.default_factory) for each in fields(section)]
        assert {*defaults} == {(MISSING, MISSING)}, section
