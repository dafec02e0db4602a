"""Completions for the shell; each takes milliseconds."""

import subprocess

from dayahead.core.project import project_root
from dayahead.presets import preset_names, search_names

N_PARTS = 4
"""Number of slashes in refs/exps/12/3456.../name."""


def complete_preset(incomplete: str) -> list[str]:
    """Return the presets that start with this text."""
    names = preset_names(project_root() / "presets")
    return [name for name in names if name.startswith(incomplete)]


def complete_search(incomplete: str) -> list[str]:
    """Return the search spaces that start with this text."""
    names = search_names(project_root() / "searches")
    return [name for name in names if name.startswith(incomplete)]


def complete_study(incomplete: str) -> list[str]:
    """Return the studies that start with this text."""
    names = search_names(project_root() / "studies")
    return [name for name in names if name.startswith(incomplete)]


def complete_runs(incomplete: str) -> list[str]:
    """Return completions of a list of runs, whose last one is the start of an experiment."""
    before, comma, last = incomplete.rpartition(",")
    command = ["git", "for-each-ref", "--format=%(refname)", "refs/exps"]
    done = subprocess.run(command, cwd=project_root(), capture_output=True, text=True, check=False)
    refs = [ref for ref in done.stdout.split() if ref.count("/") == N_PARTS and "/exec/" not in ref]
    names = sorted({ref.rpartition("/")[2] for ref in refs})
    return [f"{before}{comma}{name}" for name in names if name.startswith(last)]


def complete_row(incomplete: str) -> list[str]:
    """Return completions of a row: a list of runs that may have a name before it."""
    name, is_named, runs = incomplete.rpartition("=")
    return [f"{name}{is_named}{found}" for found in complete_runs(runs)]
