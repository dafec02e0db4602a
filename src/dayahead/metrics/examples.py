"""results/examples.json: what the model recommends in a few sessions of the newest window."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from dayahead.core.columns import WINDOW
from dayahead.core.errors import DataError
from dayahead.core.files import read_json, write_json

EXAMPLES: Final = "examples.json"
N_EXAMPLES: Final = 8
"""Sessions of a window."""
N_RECOMMENDED: Final = 10
"""Items shown for each."""


@dataclass(frozen=True)
class Example:
    """The items that score highest before the last event of a session."""

    row: int
    """Of the session among those that the window is evaluated on, from 0 on."""
    recommended: Sequence[int]
    """Catalogue indices, best first; among equal scores the lower index."""


def write_examples(results: Path, window: str, examples: Sequence[Example]) -> None:
    """Write the examples of a window in place of those of an earlier one."""
    shown = [asdict(example) for example in examples]
    write_json(results / EXAMPLES, {WINDOW: window, "examples": shown})


def read_examples(results: Path, window: str) -> list[Example]:
    """Read the examples of the newest window.

    Raises:
        DataError: the file is missing or damaged, or it is of another window.
    """
    path = results / EXAMPLES
    try:
        found = read_json(path)
        examples = [Example(**example) for example in found["examples"]]
        is_same = found[WINDOW] == window
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise DataError(
            f"{path}: expected a window and its examples ({error!r}); run `dvc repro -f train`"
        ) from None
    if not is_same:
        raise DataError(
            f"{path}: expected examples of {window}, found those of {found[WINDOW]}; run "
            f"`dvc repro -f train`"
        )
    return examples
