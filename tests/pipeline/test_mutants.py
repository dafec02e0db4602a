"""The mutation harness edits what it should, and what it writes is Python."""

import ast

from mutants import AREAS, ROOT, drawn, mutants_of

SOURCE = '''"""Docstring 1."""


def clip(values: list[int], limit: int = 3) -> list[int]:
    """Docstring 2."""
    if not values or limit < 0:
        raise ValueError(f"{limit} < {1 + 1}")
    values.sort()
    return [min(v, limit) for v in values if v != -1]
'''
EDITS = {
    (4, "3", "(4)"),
    (6, "not values or limit < 0", "(not (not values or limit < 0))"),
    (6, "not values or limit < 0", "(not values and limit < 0)"),
    (6, "not values", "(values)"),
    (6, "limit < 0", "(limit <= 0)"),
    (6, "0", "(1)"),
    (8, "values.sort()", "pass"),
    (9, "return [min(v, limit) for v in values if v != -1]", "return None"),
    (9, "min", "max"),
    (9, "v != -1", "(v == -1)"),
    (9, "-1", "(1)"),
    (9, "1", "(2)"),
}


def test_edits_leave_prose_annotations_and_messages_alone():
    mutants = mutants_of("clip.py", SOURCE)
    assert {(m.line, m.before, m.after) for m in mutants} == EDITS
    assert len(mutants) == len(EDITS)
    for mutant in mutants:
        assert SOURCE.encode() != mutant.applied(SOURCE.encode())


def test_a_seed_draws_mutants_of_every_area_that_are_python():
    areas = {name: AREAS[name] for name in ("metrics", "train")}
    mutants = drawn(ROOT, areas, count=40, seed=1)
    assert [name for name, _ in mutants] == ["metrics", "train"] * 20
    for _, mutant in mutants:
        ast.parse(mutant.applied((ROOT / mutant.file).read_bytes()))
    assert mutants == drawn(ROOT, areas, count=40, seed=1)


def test_every_area_names_source_and_tests_that_exist():
    for area in AREAS.values():
        assert all([*ROOT.glob(pattern)] for pattern in area.source)
        assert all((ROOT / folder).is_dir() for folder in area.tests)
