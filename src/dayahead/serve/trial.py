"""Two models on trial in one service: sessions are split by a hash of their ids."""

from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from dayahead.core.errors import ConfigError
from dayahead.serve.model_source import ModelSource

A: Final = "A"
"""The model that is served anyway."""
B: Final = "B"
"""The model on trial."""


@dataclass(frozen=True)
class Trial:
    """A second model that answers a share of the sessions."""

    source: ModelSource
    share: float
    """Of all sessions, above 0 and below 1."""

    def __post_init__(self) -> None:
        """Raise ConfigError for a share that leaves one of the models without sessions."""
        if not 0 < self.share < 1:
            raise ConfigError(
                f"serve: --share {self.share:g}; expected a share of the sessions for --against, "
                f"above 0 and below 1, such as 0.1"
            )

    def variant_of(self, session: str | None) -> str:
        """Return which model answers a session; A where it has no id.

        It depends on the id alone, so that all services, now and later, choose the same.
        """
        if session is None:
            return A
        digest = sha256(session.encode()).digest()
        return B if int.from_bytes(digest[:8]) < self.share * 2**64 else A
