"""Charts of the report: SVG elements in the colours of the page, which change with its theme."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from html import escape
from io import StringIO
from types import MappingProxyType
from typing import Final

# Jupyter kernels set MPLBACKEND for the commands that they start, and matplotlib refuses a backend
# that is not installed. The charts need none: they are SVG.
os.environ.pop("MPLBACKEND", None)

import matplotlib as mpl
import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.dates import date2num
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

# matplotlib knows no CSS variables: charts are drawn in placeholder colours, replaced afterwards.
_INK, _MUTED, _RULE, _ACCENT, _SECOND = ("#0a0b0c", "#0a0b0d", "#0a0b0e", "#0a0b0f", "#0a0b10")
_VARIABLES: Final = {
    _INK: "ink",
    _MUTED: "muted",
    _RULE: "rule",
    _ACCENT: "accent",
    _SECOND: "second",
}
_STYLE: Final = {
    "svg.fonttype": "none",
    "svg.hashsalt": "dayahead",  # else ids are random, and so are the bytes of the report
    "font.size": 11,
    "text.color": _INK,
    "axes.edgecolor": _RULE,
    "axes.labelcolor": _MUTED,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "axes.spines.left": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": _RULE,
    "grid.linewidth": 0.6,
    "xtick.color": _RULE,
    "xtick.labelcolor": _MUTED,
    "ytick.color": _RULE,
    "ytick.labelcolor": _MUTED,
    "ytick.major.size": 0,
}
# None leaves them out: with a date or version, equal results would give different bytes.
_METADATA: Final = dict.fromkeys(("Creator", "Date", "Format", "Type"))
_MAX_TICKS: Final = 6
_MAX_MARKERS: Final = 40
"""With more windows, a line without markers is easier to read."""
_DASHES: Final = ((0, (1, 1.5)), (0, (5, 1.5)), (0, (5, 1.5, 1, 1.5)), (0, (9, 3)), (0, (2, 4)))
"""Dash patterns of the lines other than the run's, in order."""
_THOUSANDS: Final = 1000
_WHOLE: Final = "{x:,.0f}"
"""Format of ticks from a thousand on."""
_LONG: Final = 20
"""Maximum length of a label in a legend; longer ones are cut at the start."""
_ROW: Final = 46
"""Characters in a row of a legend."""
_HANDLE: Final = 4
"""Width of a legend's line sample and of the space beside its label, in characters."""

Series = Mapping[str, Sequence[float | None]]
"""Values by label; None leaves a gap."""


def curves(
    key: str,
    windows: Sequence[str],
    series: Series,
    centre: tuple[float, tuple[float, float] | None] | None = None,
    beside: Series = MappingProxyType({}),
) -> Markup:
    """Draw one line per series over the windows, the last one in front; return an <svg> element.

    Args:
        key: prefix of the element's ids, unique on the page.
        windows: one or more names such as 2019-10-01, 2019-10-01T13 or 2019-10-01T1304.
        series: the run's own values.
        centre: a mean, drawn as a dashed line, and its interval, drawn as a band.
        beside: values of other runs, drawn as grey dashed lines behind the run's.
    """
    with _drawing(_ticks(windows)) as (axes, svg):
        days = _days(windows)
        if centre:
            mean, interval = centre
            axes.axhline(mean, color=_ACCENT, lw=0.8, ls=(0, (4, 3)))
            if interval:
                axes.axhspan(*interval, color=_ACCENT, alpha=0.12, lw=0)
        for number, (label, heights) in enumerate(beside.items()):
            dashes = _DASHES[number % len(_DASHES)]
            axes.plot(days, _known(heights), color=_MUTED, lw=1.2, ls=dashes, label=label)
        colours = ([_SECOND] * (len(series) - 1) + [_ACCENT])[: len(series)]
        marker = "o" if len(windows) <= _MAX_MARKERS else None
        for (label, values), colour in zip(series.items(), colours, strict=True):
            axes.plot(days, _known(values), color=colour, lw=1.4, marker=marker, ms=3, label=label)
        _legend(axes, len(series) + len(beside))
        if axes.get_ylim()[1] >= _THOUSANDS:
            axes.yaxis.set_major_formatter(_WHOLE)
    about = f"{windows[0]} to {windows[-1]}"
    return _themed(svg.getvalue(), key, _alternative(about, {**series, **beside}))


def bars(
    key: str, windows: Sequence[str], heights: Sequence[int], is_muted: Sequence[bool]
) -> Markup:
    """Draw one bar per window, pale where `is_muted`; return an <svg> element."""
    with _drawing(_ticks(windows)) as (axes, svg):
        days = _days(windows)
        width = 0.8 * min(np.diff(days), default=1.0)
        colours = [_SECOND if muted else _ACCENT for muted in is_muted]
        # Thin edges hide the gaps that renderers leave between hundreds of bars.
        axes.bar(days, heights, width, color=colours, edgecolor=colours, linewidth=0.3)
        axes.yaxis.set_major_formatter(_WHOLE)
    about = f"{windows[0]} to {windows[-1]}"
    return _themed(svg.getvalue(), key, _alternative(about, {key: heights}))


def _known(values: Sequence[float | None]) -> list[float]:
    return [float("nan") if value is None else value for value in values]


def _legend(axes: Axes, n_labels: int) -> None:
    if n_labels > 1:
        handles, labels = axes.get_legend_handles_labels()
        shown = [label if len(label) <= _LONG else f"...{label[3 - _LONG :]}" for label in labels]
        n_columns = max(1, min(n_labels, _ROW // (_HANDLE + max(map(len, shown)))))
        axes.legend(
            handles, shown, loc="lower right", bbox_to_anchor=(1, 1), ncols=n_columns,
            frameon=False, borderaxespad=0, handlelength=1.8, columnspacing=1.4, reverse=True,
        )  # fmt: skip


def _alternative(about: str, series: Series) -> str:
    """Describe lines for screen readers: their ends and extremes."""
    parts = []
    for label, values in series.items():
        known = [value for value in values if value is not None]
        if known:
            first, last, low, high = (
                f"{v:.4g}" for v in (known[0], known[-1], min(known), max(known))
            )
            parts.append(f"{label}: first {first}, last {last}, lowest {low}, highest {high}")
    return f"{about}. {'; '.join(parts)}."


@contextmanager
def _drawing(ticks: Mapping[float, str]) -> Iterator[tuple[Axes, StringIO]]:
    """Yield the axes of a small figure, and the buffer that gets its SVG after the block."""
    svg = StringIO()
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(5.2, 2.4), layout="constrained")
        axes = figure.add_subplot()
        yield axes, svg
        axes.set_xticks(list(ticks), list(ticks.values()))
        axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10], min_n_ticks=3))
        figure.savefig(svg, format="svg", transparent=True, metadata=_METADATA)


def _days(windows: Sequence[str]) -> list[float]:
    return [float(date2num(datetime.fromisoformat(window))) for window in windows]


def _ticks(windows: Sequence[str]) -> dict[float, str]:
    """Choose at most 6 windows to label on the axis: midnights or full hours if there are several.

    Windows of minutes are labelled 13:04, those of hours 13h, those at midnight by their date.
    """
    starts = {window: datetime.fromisoformat(window) for window in windows}
    hours = [window for window, start in starts.items() if start.minute == 0]
    midnights = [window for window in hours if starts[window].hour == 0]
    labelled = next(
        each for each in (midnights, hours, windows) if len(each) > 1 or each is windows
    )
    chosen = labelled[:: -(-len(labelled) // _MAX_TICKS) or 1]
    has_minutes = any(start.minute for start in starts.values())
    labels = [_label(starts[window], has_minutes) for window in chosen]
    return dict(zip(_days(chosen), labels, strict=True))


def _label(start: datetime, has_minutes: bool) -> str:
    date = f"{start.day} {start:%b}"
    time = f"{start:%H:%M}" if has_minutes else f"{start:%H}h"
    return f"{time}\n{date}" if start.hour or start.minute else date


def _themed(svg: str, key: str, alternative: str) -> Markup:
    element = svg[svg.index("<svg") :]
    for placeholder, variable in _VARIABLES.items():
        element = element.replace(placeholder, f"var(--{variable})")
    # Ids are unique within a chart only, so they get the key; HTML needs no namespaces.
    element = re.sub(r'id="|"#|url\(#', rf"\g<0>{key}-", element)
    element = re.sub(r' xmlns(:xlink)?="[^"]*"', "", element)
    element = element.replace("<svg", f'<svg role="img" aria-label="{escape(alternative)}"', 1)
    return Markup(element)  # noqa: S704 - matplotlib escapes its texts
