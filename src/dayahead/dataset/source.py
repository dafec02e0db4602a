"""Section `source` of datasets/<name>.yaml: where the events come from, how they are written."""

from datetime import datetime
from pathlib import PurePosixPath
from typing import Annotated, Literal

from pydantic import AfterValidator, Field
from pydantic.dataclasses import dataclass

from dayahead.config.loading import STRICT, Count, Seed


def _check_ascii(text: str) -> str:
    if len(text) != 1 or not text.isascii() or text in "\0\r\n":
        raise ValueError("expected one ASCII character that is no line end")
    return text


def _check_glob(text: str) -> str:
    if not PurePosixPath(text).name:
        raise ValueError("expected a file name or a glob, such as *.csv")
    return text


Glob = Annotated[str, AfterValidator(_check_glob)]
Character = Annotated[str, AfterValidator(_check_ascii)]


@dataclass(frozen=True, kw_only=True, config=STRICT)
class SyntheticConfig:
    """Sizes of the generated click log."""

    seed: Seed
    days: Annotated[int, Field(ge=1, le=10_000)]
    sessions_per_day: Count
    n_items: Count
    n_topics: Count
    start: datetime

    def __post_init__(self) -> None:
        """Check the time."""
        if not 1970 <= self.start.year <= 2150:  # noqa: PLR2004
            raise ValueError(f"start: expected a year from 1970 to 2150, found {self.start.year}")


@dataclass(frozen=True, kw_only=True, config=STRICT)
class SourceConfig:
    """Where the events come from and how their files are written."""

    urls: tuple[str, ...] = ()
    """Any fsspec URL or local path, globs allowed; ${oc.env:NAME} is filled in."""
    sha256: dict[str, str] = Field(default_factory=dict)
    """Expected checksums by file name; those of other files are only recorded."""
    manual: str | None = None
    """What the user must do where `urls` finds nothing (a token, a form)."""
    synthetic: SyntheticConfig | None = None
    """Generate the log instead of fetching it."""
    format: Literal["csv", "jsonl", "parquet"] = "csv"
    delimiter: Character = ","
    """Between the values of a csv row."""
    quote: Character | None = '"'
    """Around csv values that hold a delimiter, a line end or, doubled, itself; null: quotes are
    ordinary characters."""
    decimal: Literal[".", ","] = "."
    """Decimal sign of numeric features that are written as text."""
    thousands: Annotated[str, Field(pattern=r"^[^\w+-]$")] | None = None
    """Sign between groups of three digits of the same numbers; null: none."""
    header: tuple[str, ...] | None = None
    """Column names of files without a header line."""
    nulls: tuple[str, ...] = ("",)
    members: Annotated[tuple[Glob, ...], Field(min_length=1)] = ("*",)
    """Which files of an archive (zip, 7z, tar.gz) to read, as globs."""

    def __post_init__(self) -> None:
        """Check that there is exactly one source."""
        if bool(self.urls) == (self.synthetic is not None):
            raise ValueError("give either urls or synthetic")
        if len(set(self.urls)) < len(self.urls):
            twice = [n for n, url in enumerate(self.urls) if url in self.urls[:n]]
            raise ValueError(f"urls: entry {twice[0] + 1} equals an earlier one; list it once")
        if self.delimiter == self.quote:
            raise ValueError(f"delimiter and quote are both {self.quote!r}")
        if self.decimal == self.thousands:
            raise ValueError(f"decimal and thousands are both {self.decimal!r}")
