"""results/examples.json: what the model recommends in a few sessions of the newest window."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field
from pydantic.dataclasses import dataclass

from dayahead.config.loading import STRICT, validated
from dayahead.core.errors import DataError
from dayahead.core.files import read_json, write_json
from dayahead.outputs.tables import reading

EXAMPLES: Final = "examples.json"
N_EXAMPLES: Final = 8
"""Number of sessions of a window."""
N_RECOMMENDED: Final = 10
"""Number of items recommended in each."""


@dataclass(frozen=True, config=STRICT)
class Example:
    """The items that score highest before the last event of a session."""

    row: Annotated[int, Field(ge=0)]
    """Number of the session, from 0, among those that the window is evaluated on."""
    recommended: Sequence[int]
    """Catalogue indices, best first; among equal scores the lower index."""


@dataclass(frozen=True, config=STRICT)
class _File:
    window: str
    examples: Sequence[Example]


def write_examples(results: Path, window: str, examples: Sequence[Example]) -> None:
    """Write the examples of a window in place of those of an earlier one."""
    write_json(results / EXAMPLES, asdict(_File(window, examples)))


def read_examples(results: Path, window: str) -> Sequence[Example]:
    """Read the examples of the newest window.

    Raises:
        DataError: the file is missing or damaged, or it is of another window.
    """
    path = results / EXAMPLES
    with reading(path, "a window and its examples"):
        found = validated(_File, read_json(path), path.name)
    if found.window != window:
        raise DataError(
            f"{path}: expected examples of {window}, found those of {found.window}; run "
            f"`dvc repro -f train`"
        )
    return found.examples
