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


def scalar(text: str) -> str:
    """Write a text as a YAML value: plain where that is the same text, else in quotes."""
    is_plain = re.fullmatch(r"[A-Za-z_][\w.+/-]*", text, re.ASCII)
    is_word = re.fullmatch(r"null|true|false|yes|no|on|off|y|n", text, re.IGNORECASE)
    return text if is_plain and not is_word else json.dumps(text, ensure_ascii=False)
