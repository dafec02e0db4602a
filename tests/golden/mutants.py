"""Mutation testing of eight pure modules: change the source in one place, see whether a test fails.

    python tests/golden/mutants.py CLONE [--count 60] [--seed 1] [--only running ...] [--minutes 60]

Works on a clone of the last commit of CLONE; writes the kills to tests/golden/mutants.json. Gone at
the end of the rebuild: its score says whether the smaller suite still finds what the larger found.
Each module's mutants come in the order that the seed gives, so a run cut short has the first ones
of each. The packages that every test imports are loaded once; each mutant is tested in a fork.
"""

import argparse
import ast
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

RECORD = Path(__file__).with_name("mutants.json")
SECONDS_PER_MUTANT = 180
"""Tests that take longer have met an endless loop: the mutant counts as killed."""
MODULES = {
    "sessions": ("preprocess/sessions", "preprocess/test_sessions", "preprocess/test_shapes"),
    "vocabulary": ("features/vocabulary", "features/test_vocabulary", "features/test_fit"),
    "ranking": ("metrics/ranking", "metrics/test_ranking"),
    "losses": ("model/losses", "model/test_losses", "model/test_negatives"),
    "neighbours": ("model/neighbours", "model/test_neighbours"),
    "memory counts": ("memory/pairs", "memory/test_pairs", "memory/test_table"),
    "running sessions": ("memory/running", "memory/test_running", "memory/test_worth"),
    "intervals": ("statistics/intervals", "statistics/test_intervals"),
}
"""By name: a file of src/dayahead and the tests of it in tests/unit, the closest first."""

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


def edits(node: ast.AST) -> Iterator[tuple[str, ast.AST | str]]:  # noqa: C901 - a table
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


def drawn(path: Path, count: int, seed: int) -> list[Mutant]:
    """At most `count` mutants of a file; operators are equally likely while they have places."""
    stream = random.Random(f"{seed} {path.name}")
    sites: dict[str, list[Mutant]] = defaultdict(list)
    for mutant in mutants_of(path.name, path.read_text("utf-8")):
        sites[mutant.operator].append(mutant)
    for places in sites.values():
        stream.shuffle(places)
    chosen = []
    while len(chosen) < count and (left := sorted(name for name in sites if sites[name])):
        chosen.append(sites[stream.choice(left)].pop())
    return chosen


def tested(copy: Path, paths: Sequence[str]) -> str:
    """First failing test, "" if all pass; in a fork, so that packages are not imported again."""
    log = copy / "mutant.log"
    child = os.fork()
    if child == 0:
        status = 99
        try:
            os.setsid()
            os.chdir(copy)
            sys.path.insert(0, str(copy / "src"))
            with log.open("w") as file:
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
            options = ["-x", "-q", "--no-header", "--tb=no", "-p", "no:cacheprovider"]
            status = int(sys.modules["pytest"].main([*options, *paths]))
            sys.stdout.flush()
        except BaseException:  # noqa: BLE001 - the parent's clean-up must not run here
            traceback.print_exc()
        os._exit(status)
    end = time.monotonic() + SECONDS_PER_MUTANT
    status = None
    while status is None and time.monotonic() < end:
        done, code = os.waitpid(child, os.WNOHANG)
        status = os.waitstatus_to_exitcode(code) if done else None
        time.sleep(0.05)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # and processes that an aborted test left behind
    if status is None:
        os.waitpid(child, 0)
        return f"no end within {SECONDS_PER_MUTANT} s"
    if status == 0:
        return ""
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", log.read_text("utf-8"), re.MULTILINE)
    return failed[1] if failed else f"exit status {status}"


def run(root: Path, names: Sequence[str], count: int, seed: int, minutes: float) -> None:
    """Test the mutants of each module in turn and record the score; say a line about each."""
    for package in (
        "torch",
        "pandas",
        "pyarrow.parquet",
        "numba",
        "pytest",
        "scipy.stats",
    ):
        __import__(package)
    end = time.monotonic() + 60 * minutes
    results: dict[str, list[dict[str, str]]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = Path(folder)
        subprocess.run(["git", "clone", "-q", "--shared", str(root), folder], check=True)
        commit = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=copy, text=True).strip()
        chosen, tests = {}, {}
        for name in names:
            source, *files = MODULES[name]
            chosen[name] = drawn(copy / f"src/dayahead/{source}.py", count, seed)
            tests[name] = [f"tests/unit/{file}.py" for file in files]
            if failed := tested(copy, tests[name]):
                output = (copy / "mutant.log").read_text("utf-8")
                raise SystemExit(f"{name}: {failed} fails without a mutant: {output}")
            say(f"{name}: {len(chosen[name])} mutants; the tests pass without one")
        for number in range(count):
            for name in names:
                if number >= len(chosen[name]) or time.monotonic() > end:
                    continue
                mutant, path = chosen[name][number], copy / f"src/dayahead/{MODULES[name][0]}.py"
                text, times = path.read_bytes(), path.stat().st_mtime
                path.write_bytes(mutant.applied(text))
                # Compiled files differ by seconds and length.
                os.utime(path, (times - 1 - number, times - 1 - number))
                failed = tested(copy, tests[name])
                path.write_bytes(text)
                os.utime(path, (times, times))
                results[name].append({"mutant": str(mutant), "killed by": failed})
                say(f"{name} {number + 1}: {mutant}\n    {failed or 'SURVIVED'}")
            write(commit, seed, results)


def write(commit: str, seed: int, results: Mapping[str, Sequence[Mapping[str, str]]]) -> None:
    """Write what is known so far."""
    scores = {
        name: {
            "killed": sum(bool(each["killed by"]) for each in found),
            "mutants": len(found),
            "survived": [each["mutant"] for each in found if not each["killed by"]],
        }
        for name, found in results.items()
    }
    RECORD.write_text(
        json.dumps({"commit": commit, "seed": seed, "modules": scores}, indent=1) + "\n"
    )


def say(line: str) -> None:
    """Print at once."""
    print(line, flush=True)  # noqa: T201


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("clone", type=Path)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="*", default=list(MODULES))
    parser.add_argument("--minutes", type=float, default=60, help="start no mutant later")
    given = parser.parse_args()
    run(given.clone.resolve(), given.only, given.count, given.seed, given.minutes)
