"""Mutation testing: change the source in one place at a time and see whether a unit test fails.

    python tests/mutants.py --count 30 --seed 1 [--only N] [--prefix "nice -n 19"]

Works on a clone of the last commit; the working tree is never touched. The seed draws the mutants:
the areas in turn, then an operator, then a place where it applies. A surviving mutant is a missing
test, or a change that makes no difference.
"""

import argparse
import ast
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

ROOT = Path(__file__).parents[1]
MINUTES_PER_TEST = 5
"""A test that takes longer has met an endless loop: the mutant counts as killed."""


@dataclass(frozen=True)
class Area:
    """Source files (globs) and the unit tests that cover them, the closest first."""

    source: tuple[str, ...]
    tests: tuple[str, ...]


def _area(rooms: Sequence[str], more_tests: Sequence[str] = ()) -> Area:
    return Area(
        tuple(f"src/dayahead/{room}/*.py" for room in rooms),
        tuple(f"tests/unit/{room}" for room in (*rooms, *more_tests)),
    )


AREAS = {
    "model": _area(["model"], ["train", "serve"]),
    "memory": _area(["memory"], ["model", "train"]),
    "metrics": _area(["metrics", "outputs", "statistics"], ["train", "aggregate", "comparison"]),
    "preprocess": _area(["preprocess", "features"]),
    "train": _area(["train"], ["serve"]),
    "serve": _area(["serve"], ["commands"]),
    "nightly": _area(["nightly"], ["commands"]),
}

COMPARISONS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
ARITHMETIC = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult, ast.Pow: ast.Mult,
}  # fmt: skip
_OPPOSITES = [
    ("min", "max"), ("any", "all"), ("minimum", "maximum"), ("zeros", "ones"), ("amin", "amax"),
    ("floor", "ceil"), ("argmin", "argmax"), ("sum", "mean"), ("left", "right"),
    ("zeros_like", "ones_like"), ("start", "end"), ("update", "difference_update"),
]  # fmt: skip
OPPOSITES = {a: b for pair in _OPPOSITES for a, b in (pair, pair[::-1])}


@dataclass(frozen=True)
class Mutant:
    """One edit of one file."""

    file: str
    line: int
    operator: str
    start: int
    end: int
    before: str
    after: str

    def applied(self, text: bytes) -> bytes:
        """The file's content with the edit."""
        return text[: self.start] + self.after.encode() + text[self.end :]

    def __str__(self) -> str:
        before, after = (" ".join(side.split()) for side in (self.before, self.after))
        return f"{self.file}:{self.line}  {self.operator}: {before} -> {after}"


def edits(node: ast.AST) -> Iterator[tuple[str, ast.AST | str]]:  # noqa: C901, PLR0912 - a table
    """Operators that apply to a node, each with what takes the node's place."""
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            yield "comparison", ast.Compare(left, [COMPARISONS[type(op)]()], [right])
        case ast.BinOp(op=ast.Div(), right=ast.Constant(value=str()) | ast.JoinedStr()):
            pass  # a path: any edit is a TypeError
        case ast.BinOp(left=left, op=op, right=right) if type(op) in ARITHMETIC:
            yield "arithmetic", ast.BinOp(left, ARITHMETIC[type(op)](), right)
        case ast.Constant(value=bool(value)):
            yield "boolean", ast.Constant(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield "constant", ast.Constant(value + 1)
        case ast.BoolOp(op=op, values=values):
            yield "and/or", ast.BoolOp(ast.And() if isinstance(op, ast.Or) else ast.Or(), values)
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield "negation", operand
        case ast.Name(id=name) if name in OPPOSITES:
            yield "opposite", OPPOSITES[name]
        case ast.Attribute(value=value, attr=name) if name in OPPOSITES:
            yield "opposite", ast.Attribute(value, OPPOSITES[name])
        case ast.Return(value=ast.expr()):
            yield "return", "return None"
        case ast.Expr(value=ast.Call()) | ast.AugAssign():
            yield "removed statement", "pass"
        case ast.Break():
            yield "loop", "continue"
        case ast.Continue():
            yield "loop", "break"
    if isinstance(node, ast.If | ast.IfExp | ast.While):
        yield "condition", ast.UnaryOp(ast.Not(), node.test)


def nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Nodes worth a mutant: no annotations, decorators, messages, nor `strict=True` of zip."""
    if isinstance(node, ast.JoinedStr | ast.Raise):
        return
    if isinstance(node, ast.keyword) and node.arg == "strict":
        return
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "bases", "type_params"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from nodes(child)


def mutants_of(file: str, text: str) -> list[Mutant]:
    """All mutants of a source file."""
    content = text.encode()
    starts = [0]
    for line in content.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found = []
    for node in nodes(ast.parse(text)):
        for operator, changed in edits(node):
            place = node.test if operator == "condition" else node
            start = starts[place.lineno - 1] + place.col_offset
            end = starts[place.end_lineno - 1] + place.end_col_offset
            before = content[start:end].decode()
            after = changed if isinstance(changed, str) else f"({ast.unparse(changed)})"
            found.append(Mutant(file, place.lineno, operator, start, end, before, after))
    return found


def drawn(root: Path, areas: Mapping[str, Area], count: int, seed: int) -> list[tuple[str, Mutant]]:
    """`count` mutants with the name of their area."""
    stream = random.Random(seed)
    sites: dict[str, dict[str, list[Mutant]]] = {}
    for name, area in areas.items():
        sites[name] = defaultdict(list)
        for path in sorted(path for glob in area.source for path in root.glob(glob)):
            for mutant in mutants_of(str(path.relative_to(root)), path.read_text("utf-8")):
                sites[name][mutant.operator].append(mutant)
        for kept in sites[name].values():
            stream.shuffle(kept)
    return [
        (
            name,
            sites[name][stream.choice(sorted(op for op in sites[name] if sites[name][op]))].pop(),
        )
        for name in islice(cycle(areas), count)
    ]


def tested(copy: Path, area: Area, prefix: Sequence[str], file: str) -> tuple[str, float]:
    """First failing test ("" if all pass) and seconds; `file` is the mutated source."""
    mirror = [f"{folder}/test_{Path(file).stem}.py" for folder in area.tests]
    paths = [path for path in (*mirror, *area.tests) if (copy / path).exists()]
    limit = f"faulthandler_timeout={60 * MINUTES_PER_TEST}"
    options = ["-x", "-q", "--no-header", "--tb=no", "-p", "no:cacheprovider", "-o", limit]
    command = [sys.executable, "-m", "pytest", *options, "-o", "faulthandler_exit_on_timeout=true"]
    environment = {"PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    start = time.monotonic()
    process = subprocess.Popen(
        [*prefix, *command, *paths],
        cwd=copy,
        env=os.environ | environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    output, _ = process.communicate()
    seconds = time.monotonic() - start
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # processes that an aborted test left behind
    if process.returncode == 0:
        return "", seconds
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE)
    return (failed[1] if failed else f"exit status {process.returncode}"), seconds


def run(
    root: Path,
    areas: Mapping[str, Area],
    chosen: Sequence[tuple[str, Mutant]],
    prefix: Sequence[str] = (),
) -> None:
    """Test each mutant on a clone of `root` and print a line about it; at the end the score."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = Path(folder)
        subprocess.run(["git", "clone", "-q", "--shared", str(root), folder], check=True)
        for name in dict.fromkeys(name for name, _ in chosen):
            failed, seconds = tested(copy, areas[name], prefix, "")
            _say(
                f"unchanged: {name} {'fails at ' + failed if failed else 'passes'} {seconds:.0f} s"
            )
            if failed:
                raise SystemExit("the tests must pass before mutants can tell anything")
        killed: dict[str, list[bool]] = defaultdict(list)
        for number, (name, mutant) in enumerate(chosen, start=1):
            path = copy / mutant.file
            text = path.read_bytes()
            path.write_bytes(mutant.applied(text))
            failed, seconds = tested(copy, areas[name], prefix, mutant.file)
            path.write_bytes(text)
            killed[name].append(bool(failed))
            outcome = f"killed by {failed}" if failed else "SURVIVED"
            _say(f"{number:2d}  {mutant}\n      {outcome}, {seconds:.0f} s")
    for name, results in killed.items():
        _say(f"{name:12s} {sum(results):2d} of {len(results)} killed")
    _say(f"{'all':12s} {sum(map(sum, killed.values()))} of {len(chosen)} killed")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, nargs="*", help="numbers of mutants, counted from 1")
    parser.add_argument("--list", action="store_true", help="print the mutants, run nothing")
    parser.add_argument("--prefix", default="", help="command that pytest is run by")
    given = parser.parse_args()
    mutants = drawn(ROOT, AREAS, given.count, given.seed)
    if given.only:
        mutants = [mutants[number - 1] for number in given.only]
    if given.list:
        _say("\n".join(f"{n:2d}  {mutant}" for n, (_, mutant) in enumerate(mutants, start=1)))
    else:
        run(ROOT, AREAS, mutants, given.prefix.split())
