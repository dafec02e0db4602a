"""`--help` of every verb, and what the shell completes."""

import os
import shlex
import subprocess
import sys
from importlib.metadata import version

import pytest
import typer
from rich.text import Text
from typer.testing import CliRunner

from dayahead.__main__ import app
from dayahead.commands.completion import (
    complete_preset,
    complete_row,
    complete_runs,
    complete_search,
    complete_study,
)
from dayahead.commands.help_examples import EXAMPLES

WIDTH = 80
GROUP = typer.main.get_command(app)


def verbs(group, before=()):
    """Every verb, those of a group after it: {"cache push": command}."""
    found = {}
    for name, command in group.commands.items():
        words = (*before, name)
        found[" ".join(words)] = command
        if hasattr(command, "commands"):
            found |= verbs(command, words)
    return found


VERBS = verbs(GROUP)


def test_every_verb_has_examples():
    assert sorted(EXAMPLES) == sorted(VERBS)


def test_the_version_is_that_of_the_package():
    shown = CliRunner().invoke(app, ["--version"])
    assert (shown.exit_code, shown.stdout) == (0, f"dayahead {version('dayahead')}\n")


@pytest.mark.parametrize("verb", EXAMPLES)
def test_the_help_of_a_verb_ends_with_its_examples(verb):
    environment = {"COLUMNS": str(WIDTH), "TERMINAL_WIDTH": str(WIDTH)}
    shown = CliRunner().invoke(app, [*verb.split(), "--help"], env=environment)
    lines = [line.strip() for line in shown.output.splitlines() if line.strip()]
    expected = ("Examples:", *EXAMPLES[verb])
    assert tuple(lines[-len(expected) :]) == expected
    assert max(map(len, shown.output.splitlines())) <= WIDTH


def test_help_shows_words_in_brackets():
    """Such as `pip install 'dayahead[hnsw]'`: rich takes them for markup, unless escaped."""
    helps = [each.help or "" for command in VERBS.values() for each in command.params]
    helps += [command.help or "" for command in VERBS.values()]
    hidden = [text for text in helps if Text.from_markup(text).plain.count("[") < text.count("[")]
    assert hidden == []


@pytest.mark.parametrize("verb", EXAMPLES)
def test_the_options_of_examples_exist(verb):
    own = [example for example in EXAMPLES[verb] if example.startswith(f"dayahead {verb}")]
    assert own
    for example in own:
        words = shlex.split(example.replace("$(dayahead preset g1/xlnet-mlm)", "-Smodel.n_layer=1"))
        # An unknown option, or an argument too many, is an error of the parser.
        VERBS[verb].make_context(verb, words[len(verb.split()) + 1 :])


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.setenv("DAYAHEAD_ROOT", str(tmp_path))
    for path in ("presets/g1.yaml", "searches/network.yaml", "studies/g1.yaml"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("rows: {gpt2: {}, gru: {}}")
    return tmp_path


def test_presets_and_spaces_are_completed(project):
    assert complete_preset("g1/gp") == ["g1/gpt2"]
    assert complete_preset("") == ["g1/gpt2", "g1/gru"]
    assert complete_search("n") == ["network"]
    assert complete_search("x") == []
    assert complete_study("") == ["g1"]


def test_experiments_are_completed_one_after_the_other(project):
    assert complete_runs("") == []  # no repository
    for arguments in (["init", "--quiet"], ["commit", "--quiet", "--allow-empty", "-m", "x"]):
        name = ["-c", "user.name=me", "-c", "user.email=me@here"]
        subprocess.run(["git", *name, *arguments], cwd=project, check=True)
    for ref in ("12/345/small", "12/345/seed-1", "12/345/seed-2", "exec/EXEC_HEAD"):
        subprocess.run(["git", "update-ref", f"refs/exps/{ref}", "HEAD"], cwd=project, check=True)
    assert complete_runs("s") == ["seed-1", "seed-2", "small"]
    assert complete_runs("seed-1,se") == ["seed-1,seed-1", "seed-1,seed-2"]
    assert complete_row("small=seed-1,se") == ["small=seed-1,seed-1", "small=seed-1,seed-2"]
    assert complete_row("sm") == ["small"]


@pytest.mark.long
def test_the_shell_gets_what_is_completed(project):
    """As bash asks for it."""
    environment = {"_DAYAHEAD_COMPLETE": "complete_bash", "COMP_WORDS": "dayahead preset g1/gr"}
    done = subprocess.run(
        [sys.executable, "-c", "import sys; sys.argv[0] = 'dayahead'\n"
         "from dayahead.__main__ import main; main()"],
        env={**os.environ, **environment, "COMP_CWORD": "2"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.split() == ["g1/gru"]
