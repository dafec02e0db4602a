"""Section `source` of datasets/<name>.yaml: where the events come from, how they are written."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, PositiveInt
from pydantic.dataclasses import dataclass

from dayahead.config.loading import STRICT


def _check_ascii(text: str) -> str:
    if len(text) != 1 or not text.isascii() or text in "\0\r\n":
        raise ValueError("expected one ASCII character that is no line end")
    return text


Character = Annotated[str, AfterValidator(_check_ascii)]


@dataclass(frozen=True, kw_only=True, config=STRICT)
class SyntheticConfig:
    """Sizes of the generated click log."""

    seed: int
    days: PositiveInt
    sessions_per_day: PositiveInt
    n_items: PositiveInt
    n_topics: PositiveInt
    start: datetime


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
    members: tuple[str, ...] = ("*",)
    """Which files of an archive (zip, 7z, tar.gz) to read, as globs."""

    def __post_init__(self) -> None:
        """Check that there is exactly one source."""
        if bool(self.urls) == (self.synthetic is not None):
            raise ValueError("give either urls or synthetic")
        if self.delimiter == self.quote:
            raise ValueError(f"delimiter and quote are both {self.quote!r}")
        if self.decimal == self.thousands:
            raise ValueError(f"decimal and thousands are both {self.decimal!r}")
