"""The list of forgotten users in a data set's file, which `download` leaves out."""

import secrets
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from dayahead.core.errors import ConfigError
from dayahead.core.files import write_text
from dayahead.dataset.forgotten import ForgottenConfig
from dayahead.dataset.schema import load_dataset

_NOTE = "# Written by `dayahead forget`: `download` leaves out the rows of these users."


def suppress_users(path: Path, users: Collection[str]) -> int:
    """Add users to the list of datasets/<name>.yaml; return how many were not on it.

    The rest of the file stays as it is.

    Raises:
        ConfigError: the list is not in a section of its own.
    """
    known = load_dataset(path.stem, path.parent).forgotten
    if not known.users:
        known = replace(known, key=secrets.token_hex(16))
    listed = {*known.users, *map(known.hash_of, users)}
    before = path.read_text(encoding="utf-8")
    write_text(path, _with_section(before, replace(known, users=tuple(sorted(listed)))))
    try:
        # The section is replaced as text, so check how YAML reads it.
        is_right = load_dataset(path.stem, path.parent).forgotten.users == tuple(sorted(listed))
    except ConfigError:
        is_right = False
    if not is_right:
        write_text(path, before)
        raise ConfigError(
            f"{path}: the section forgotten cannot be replaced; write it as a block of its own, as "
            f"in datasets/template.yaml"
        )
    return len(listed) - len(known.users)


def _with_section(text: str, forgotten: ForgottenConfig) -> str:
    """Return the text of a data set's file with this section in place of its own."""
    lines, kept, is_own = text.splitlines(), [], False
    for line in lines:
        is_own = line.startswith("forgotten:") or (is_own and line.startswith((" ", "- ", "\t")))
        if not is_own and line != _NOTE:
            kept.append(line)
    users = [f'  - "{user}"' for user in forgotten.users]  # quoted: some hashes look like numbers
    section = [_NOTE, "forgotten:", f'  key: "{forgotten.key}"', "  users:", *users]
    return "\n".join([*kept, *section]) + "\n"
