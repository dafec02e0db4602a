"""`--help` of every verb."""

import shlex
from importlib.metadata import version

import pytest
import typer
from rich.text import Text
from typer.testing import CliRunner

from dayahead.__main__ import app
from dayahead.commands.help_examples import EXAMPLES

WIDTH = 80
GROUP = typer.main.get_command(app)


VERBS = GROUP.commands


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
    """Such as `pip install 'dayahead[redis]'`: rich takes them for markup, unless escaped."""
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
