"""What was found, and how sure it is."""

import json
import re
from dataclasses import dataclass
from typing import Literal

Confidence = Literal["certain", "likely", "unsure"]


@dataclass(frozen=True)
class Finding:
    """One guess about a log, for the terminal and for a comment of the data set file."""

    key: str
    """A setting of the data set file, or what else was looked for."""
    value: str
    """As it is shown."""
    confidence: Confidence
    reason: str

    @property
    def comment(self) -> str:
        """Return the guess as a comment."""
        return f"{self.confidence}: {self.reason}"


_UNPRINTABLE = re.compile(
    r"[^\t\n\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
)
"""What no YAML file may hold as it is, or takes for the end of a line."""


def scalar(text: str) -> str:
    """Write a text as a YAML value: plain where that is the same text, else in quotes."""
    is_plain = re.fullmatch(r"[A-Za-z_][\w.+/-]*", text, re.ASCII)
    is_word = re.fullmatch(r"null|true|false|yes|no|on|off|y|n", text, re.IGNORECASE)
    if is_plain and not is_word:
        return text
    quoted = json.dumps(text, ensure_ascii=False)
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", quoted)


def printable(text: str) -> str:
    """Replace what cannot be in a comment."""
    return _UNPRINTABLE.sub("?", text)
