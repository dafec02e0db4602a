"""The warning beside printed results that params.yaml and dvc.lock disagree."""

import sys

from dayahead.config.locked_settings import disagreements
from dayahead.core.project import project_root


def warn_of_disagreement() -> None:
    """Print what `disagreements` finds in this project to stderr."""
    for line in disagreements(project_root()):
        print(f"warning: {line}", file=sys.stderr)
