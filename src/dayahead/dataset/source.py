"""Section `source` of datasets/<name>.yaml: where the events come from, how they are written."""

from dataclasses import field
from datetime import datetime
from pathlib import PurePosixPath
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic.dataclasses import dataclass

from dayahead.config.loading import STRICT, Count, Seed


def _check_ascii(text: str) -> str:
    if len(text) != 1 or not text.isascii() or text in "\0\r\n":
        raise ValueError("expected one ASCII character that is no line end")
    return text


def _check_delimiter(text: str) -> str:
    if not 1 <= len(text) <= 4 or set(text) & set("\0\r\n\ufeff"):  # noqa: PLR2004
        raise ValueError("expected one to four characters, none of them a line end")
    return text


def _check_encoding(name: str) -> str:
    try:
        "".encode(name)  # a LookupError too if it is no encoding of text
    except (LookupError, ValueError):
        raise ValueError(
            f"unknown encoding {name!r}; expected a name such as cp1252 or utf-16-le"
        ) from None
    return name


def _as_text(value: object) -> object:
    """Write a YAML value as the log has it: 1, true."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int) else value


def _check_glob(text: str) -> str:
    if not PurePosixPath(text).name:
        raise ValueError("expected a file name or a glob, such as *.csv")
    return text


TABLES = ("sql", "delta", "iceberg")
"""Formats that are tables of a warehouse rather than files."""
SQL = ("postgresql://", "postgres://", "duckdb://")
"""Beginnings of the addresses of databases."""
Glob = Annotated[str, AfterValidator(_check_glob)]
Character = Annotated[str, AfterValidator(_check_ascii)]
Delimiter = Annotated[str, AfterValidator(_check_delimiter)]
Encoding = Annotated[str, AfterValidator(_check_encoding)]
Values = Annotated[tuple[Annotated[str, BeforeValidator(_as_text)], ...], Field(min_length=1)]


@dataclass(frozen=True, kw_only=True, config=STRICT)
class SyntheticConfig:
    """Sizes of the generated click log."""

    seed: Seed
    days: Annotated[int, Field(ge=1, le=10_000)]
    sessions_per_day: Count
    n_items: Count
    n_topics: Count
    start: datetime
    # repr=False: the fingerprint of a log is of this repr, which without a shop must not change.
    shop: bool = field(default=False, repr=False)
    """Events have a type (view, cart, purchase), and the section `items` may read the catalogue."""

    def __post_init__(self) -> None:
        """Check the time, and that each topic can have an item."""
        if self.n_topics > self.n_items:
            raise ValueError(
                f"n_topics: expected at most n_items ({self.n_items}), as each topic has an item, "
                f"found {self.n_topics}"
            )
        if not 1970 <= self.start.year <= 2150:  # noqa: PLR2004
            raise ValueError(f"start: expected a year from 1970 to 2150, found {self.start.year}")


@dataclass(frozen=True, kw_only=True, config=STRICT)
class SourceConfig:
    """Where the events come from and how their files are written."""

    urls: tuple[str, ...] = ()
    """Any fsspec URL or local path, globs allowed; ${oc.env:NAME} is filled in. For `sql` a
    database (postgresql://host/name, duckdb://folder/file), for `delta` a table, for `iceberg` its
    metadata.json or iceberg://catalog/namespace.table."""
    sha256: dict[str, str] = Field(default_factory=dict)
    """Expected checksums by file name; those of other files are only recorded."""
    manual: str | None = None
    """What the user must do where `urls` finds nothing (a token, a form)."""
    synthetic: SyntheticConfig | None = None
    """Generate the log instead of fetching it."""
    format: Literal["csv", "jsonl", "parquet", "sql", "delta", "iceberg"] = "csv"
    query: Annotated[str, Field(pattern=r"\S")] | None = None
    """Of `sql`, which needs it: one SELECT. Its order counts for nothing, see `order`."""
    order: tuple[str, ...] = ()
    """Of `sql`, `delta` and `iceberg`: columns that order rows of equal time, such as a number of
    the event. After these, rows are in the order of their other values."""
    encoding: Encoding = "utf-8"
    """Of csv and jsonl: any name of a Python codec (cp1252, utf-16-le, shift_jis). Files that begin
    with a byte order mark of UTF-8, UTF-16 or UTF-32 are read by it."""
    delimiter: Delimiter = ","
    """Between the values of a csv row: one to four characters."""
    quote: Character | None = '"'
    """Around csv values that hold a delimiter, a line end or, doubled, itself; null: quotes are
    ordinary characters."""
    escape: Character | None = None
    """Of csv: makes the next character an ordinary one, such as a backslash before a quote. A value
    that is only this character and N stays as it is: list it in `nulls`."""
    decimal: Literal[".", ","] = "."
    """Decimal sign of numeric features that are written as text."""
    thousands: Annotated[str, Field(pattern=r"^[^\w+-]$")] | None = None
    """Sign between groups of three digits of the same numbers; null: none."""
    header: tuple[str, ...] | None = None
    """Column names of files without a header line."""
    nulls: tuple[str, ...] = ("",)
    members: Annotated[tuple[Glob, ...], Field(min_length=1)] = ("*",)
    """Which files of an archive (zip, 7z, tar.gz) to read, as globs. At the default, documents such
    as README or licence.pdf are left out, and files of several kinds are an error."""
    explode: Annotated[str, Field(min_length=1)] | None = None
    """Of jsonl and parquet: path of a list in each record, one row per element. Its fields are
    columns `<path>.<name>`."""
    where: dict[str, Values] = Field(default_factory=dict)
    """Keep only rows whose value, as text, is one of these, by source column. The others are
    counted by column in `dropped`."""

    @property
    def layout(self) -> str:
        """Format of the files that are read: tables are fetched as parquet."""
        return "parquet" if self.format in TABLES else self.format

    def __post_init__(self) -> None:
        """Check that there is exactly one source."""
        self._check_tables()
        if bool(self.urls) == (self.synthetic is not None):
            raise ValueError("give either urls or synthetic")
        if len(set(self.urls)) < len(self.urls):
            twice = [n for n, url in enumerate(self.urls) if url in self.urls[:n]]
            raise ValueError(f"urls: entry {twice[0] + 1} equals an earlier one; list it once")
        for one, other in (("delimiter", "quote"), ("delimiter", "escape"), ("escape", "quote")):
            value = getattr(self, one)
            if value is not None and value == getattr(self, other):
                raise ValueError(f"{one} and {other} are both {value!r}")
        if self.quote is not None and self.quote in self.delimiter:
            raise ValueError(f"delimiter {self.delimiter!r} contains quote {self.quote!r}")
        if self.explode is not None and self.format == "csv":
            raise ValueError("explode needs format jsonl or parquet: a csv row has no lists")
        if self.decimal == self.thousands:
            raise ValueError(f"decimal and thousands are both {self.decimal!r}")

    def _check_tables(self) -> None:
        """Check the settings of tables, and that files have none of them."""
        if (self.query is None) == (self.format == "sql"):
            raise ValueError("query: needed for format sql, and for no other")
        if self.format not in TABLES:
            if self.order:
                raise ValueError(f"order: rows of files have one; needs format {', '.join(TABLES)}")
            return
        if self.sha256:
            raise ValueError("sha256: checks files; tables have versions of their own")
        if not self.urls:
            raise ValueError(f"urls: format {self.format} needs the address of a table")
        if self.format == "sql" and not all(url.startswith(SQL) for url in self.urls):
            raise ValueError(f"urls: format sql reads {', '.join(SQL)}")
