"""The command line: `dayahead VERB`, or `python -m dayahead VERB`."""

import sys
from io import TextIOWrapper

from dayahead.core.errors import exit_with_message, terminable

with exit_with_message():
    import typer

    from dayahead.commands.cache import cache
    from dayahead.commands.compare import compare
    from dayahead.commands.help_examples import epilog_of
    from dayahead.commands.inspect import inspect
    from dayahead.commands.nightly import nightly
    from dayahead.commands.preset import preset
    from dayahead.commands.profile import profile
    from dayahead.commands.recommend import recommend
    from dayahead.commands.serve import serve
    from dayahead.commands.similar import similar
    from dayahead.commands.summary import summary
    from dayahead.commands.table import table
    from dayahead.commands.track import track
    from dayahead.commands.tune import tune
    from dayahead.commands.version import dayahead

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)

app.callback()(dayahead)
for _verb in (
    *(
        recommend,
        similar,
        serve,
        compare,
        table,
        preset,
        tune,
        nightly,
    ),
    *(summary, profile, track, cache, inspect),
):
    app.command(epilog=epilog_of(_verb.__name__))(_verb)


def main() -> None:
    """Run the verb that the command line names; an error of the user ends in one line."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # file names may not be valid UTF-8
    with exit_with_message(), terminable():
        app()


if __name__ == "__main__":
    main()
