"""`python repro.py WORDS...`: `dvc repro WORDS` without hints for a person who works by hand.

The hints say to commit dvc.lock and to push; a scheduled night does neither. This is run as a file
and imports nothing of ours.
"""

import logging
import sys

from dvc.cli import main
from dvc.commands import repro
from dvc.repo import scm_context


class Repro(repro.CmdRepro):  # type: ignore[misc]  # DVC has no types
    """The command, with the stages' output and errors alone."""

    def run(self) -> int:
        """Reproduce; return the exit status."""
        hints = scm_context.logger
        hints.setLevel(max(logging.WARNING, hints.getEffectiveLevel()))
        self.repo.reproduce(**self._common_kwargs, **self._repro_kwargs)
        return 0


if __name__ == "__main__":
    repro.CmdRepro = Repro  # before DVC builds its parser from it
    sys.exit(main(["repro", *sys.argv[1:]]))
