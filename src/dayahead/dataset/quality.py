"""Section `quality` of datasets/<name>.yaml: how much may be wrong with a log."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from dayahead.config.loading import STRICT

Rank = Annotated[float, Field(ge=0, le=1)]
NEEDED_NULLS = 0.01
"""Share allowed of rows without a value that no event can do without."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class QualityConfig:
    """How much of what is wrong with a log is allowed, as shares; null: any, only reported."""

    nulls: dict[str, Rank | None] = Field(default_factory=dict)
    """Rows without a value, by column of the event table; not named: 0.01 of those that no event
    can do without (session or user, item, times), any of others."""
    unreadable: Rank = 0.0
    """Rows with a value that cannot be read. At 0 the first one ends the stage; above, such rows
    are left out and counted."""
    duplicates: Rank | None = None
    """Events equal to another of the same part in every column."""
    backwards: Rank | None = None
    """Events before the one in the row before, in the same file."""
    negative: dict[str, Rank | None] = Field(default_factory=dict)
    """Events with a number below zero, by feature."""
    empty_days: Rank | None = None
    """Days (UTC) without an event, between the first and the last."""

    def check_names(self, columns: Sequence[str], numbers: Sequence[str]) -> None:
        """Refuse limits of what the event table has not.

        Args:
            columns: Its columns.
            numbers: Those that hold a number.
        """
        for key, limits, known in (
            ("nulls", self.nulls, columns),
            ("negative", self.negative, numbers),
        ):
            if strange := [name for name in limits if name not in known]:
                known_names = ", ".join(known) or "none"
                raise ValueError(
                    f"quality.{key}: {', '.join(strange)}: expected some of {known_names}"
                )

    def limit(self, check: str, needed: Sequence[str]) -> float | None:
        """Share allowed of what a check finds; None: any.

        Args:
            check: A key of this section: duplicates, nulls.price ...
            needed: Columns that no event can do without.
        """
        kind, _, column = check.partition(".")
        limits = {
            "nulls": self.nulls.get(column, NEEDED_NULLS if column in needed else None),
            "unreadable": self.unreadable,
            "duplicates": self.duplicates,
            "backwards": self.backwards,
            "negative": self.negative.get(column),
            "empty_days": self.empty_days,
        }
        return limits[kind]
