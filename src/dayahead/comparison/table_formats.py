"""A table of results as Markdown, LaTeX or CSV."""

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import StringIO
from textwrap import fill
from typing import Final, Literal

from tabulate import LATEX_ESCAPE_RULES, tabulate  # type: ignore[import-untyped]

from dayahead.comparison.table import ResultTable, TableRow
from dayahead.config.metric_names import title_of
from dayahead.statistics.intervals import MIN_WINDOWS

Format = Literal["markdown", "latex", "csv"]
_WIDTH: Final = 100


@dataclass(frozen=True)
class _Markup:
    """How a format writes what is more than letters and digits."""

    bold: str
    mark: str
    plus_minus: str
    percent: str
    escapes: Mapping[int, str]

    def escaped(self, text: str) -> str:
        return text.translate(self.escapes)


_MARKDOWN: Final = _Markup(
    bold="**{}**",
    mark=r"\*",
    plus_minus="±",
    percent="%",
    escapes=str.maketrans({each: f"\\{each}" for each in r"\|*_`[]<>"}),
)
_LATEX: Final = _Markup(
    bold=r"\textbf{{{}}}",
    mark="$^{*}$",
    plus_minus=r"$\pm$",
    percent=r"\%",
    escapes=str.maketrans(LATEX_ESCAPE_RULES),
)


def formatted(table: ResultTable, format_: Format, *, has_intervals: bool = False) -> str:
    """Return a table as text that ends with a line break.

    Markdown and LaTeX (with the package booktabs) round to 4 digits, print the best of each metric
    bold, mark rows that differ significantly and explain the mark; CSV has all digits, the ends of
    the intervals, the adjusted p-values and one header line.

    Args:
        table: rows and metrics.
        format_: one of `Format`.
        has_intervals: whether half of the 95 % interval follows each number; CSV always has both
            ends.
    """
    if format_ == "csv":
        return _csv(table)
    markup = _MARKDOWN if format_ == "markdown" else _LATEX
    head = ["", "runs", *map(title_of, table.metrics)]
    rows = [_cells(row, table.level, markup, has_intervals) for row in table.rows]
    notes = " ".join(_notes(table, markup, has_intervals))
    return (_markdown if format_ == "markdown" else _latex)(head, rows, notes)


def _cells(row: TableRow, level: float, markup: _Markup, has_intervals: bool) -> list[str]:
    """Return a row's name, number of runs and numbers."""
    cells = [markup.escaped(row.name), f"{len(row.runs)}"]
    for cell in row.cells:
        text = f"{cell.aod:.4f}"
        if cell.is_best:
            text = markup.bold.format(text)
        if has_intervals and cell.ci95 is not None:
            text += f" {markup.plus_minus} {(cell.ci95[1] - cell.ci95[0]) / 2:.4f}"
        is_marked = cell.p is not None and cell.p <= level
        cells.append(f"{text}{markup.mark}" if is_marked else text)
    return cells


def _markdown(head: list[str], rows: list[list[str]], notes: str) -> str:
    alignment = ["left", *["right"] * (len(head) - 1)]
    body = tabulate(rows, head, tablefmt="pipe", disable_numparse=True, colalign=alignment)
    return f"{body}\n\n{_filled(notes)}\n"


def _latex(head: list[str], rows: list[list[str]], notes: str) -> str:
    lines = [f"{' & '.join(cells)} \\\\" for cells in (head, *rows)]
    return "\n".join(
        (
            f"\\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}",
            r"\toprule",
            lines[0],
            r"\midrule",
            *lines[1:],
            r"\bottomrule",
            r"\end{tabular}",
            "",
            _filled(f"{{\\footnotesize {notes}\\par}}"),
            "",
        )
    )


def _filled(notes: str) -> str:
    return fill(notes, _WIDTH, break_on_hyphens=False, break_long_words=False)


def _csv(table: ResultTable) -> str:
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    parts = ("", "_low", "_high", "_p")
    columns = [f"{metric}{part}" for metric in table.metrics for part in parts]
    writer.writerow(["row", "runs", "windows", "targets", *columns])
    for row in table.rows:
        numbers = [
            value
            for cell in row.cells
            for value in (cell.aod, *(cell.ci95 or (None, None)), cell.p)
        ]
        shared = (len(table.windows), table.n_targets)
        writer.writerow([row.name, len(row.runs), *shared, *numbers])
    return text.getvalue()


def _notes(table: ResultTable, markup: _Markup, has_intervals: bool) -> Iterator[str]:
    """Yield the sentences below a table."""
    windows, n_rows = table.windows, len(table.rows)
    yield (
        f"Means over {len(windows):,} windows ({windows[0]} to {windows[-1]}), equally weighted, "
        f"of {table.n_targets:,} targets in {table.n_sessions:,} sessions, and over the runs of a "
        f"row, which differ in their seeds; bold: the best of a column."
    )
    if len(windows) < MIN_WINDOWS:
        yield f"No tests and intervals: they take {MIN_WINDOWS} windows or more."
        return
    if has_intervals:
        sign, percent = markup.plus_minus, markup.percent
        yield f"{sign}: half of the 95 {percent} interval over windows and runs."
    single = [markup.escaped(row.name) for row in table.rows if len(row.runs) == 1]
    if n_rows > 1 and len(single) < n_rows:
        is_best = table.baseline is None
        other = "the best" if table.baseline is None else markup.escaped(table.baseline)
        yield (
            f"{markup.mark}: differs from {other} at level {table.level:g} by a two-sided t-test "
            f"over windows and runs, p-values adjusted by Holm's method for all "
            f"{'pairs of rows' if is_best else 'other rows'}, each metric by itself."
        )
    if n_rows > 1 and single:
        yield f"Not tested, as they have a single run: {', '.join(single)}."
