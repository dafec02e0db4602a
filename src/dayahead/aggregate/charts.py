"""Per-window curves as SVG that takes its colours from the page around it."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from io import StringIO
from typing import Final

import matplotlib as mpl
import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.dates import date2num
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from dayahead.aggregate.averaging import Interval

# matplotlib knows no CSS variables: it draws in placeholders, exchanged in the finished text.
_INK, _MUTED, _RULE, _ACCENT, _SECOND = ("#0a0b0c", "#0a0b0d", "#0a0b0e", "#0a0b0f", "#0a0b10")
_VARIABLES: Final = {
    _INK: "var(--ink)",
    _MUTED: "var(--muted)",
    _RULE: "var(--rule)",
    _ACCENT: "var(--accent)",
    _SECOND: "var(--second)",
}
_STYLE: Final = {
    "svg.fonttype": "none",
    "svg.hashsalt": "dayahead",  # else ids are random and no two reports alike
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
_METADATA: Final = dict.fromkeys(("Creator", "Date", "Format", "Type"))
_N_TICKS: Final = 6
_N_MARKED: Final = 40
"""Beyond this many windows a line without markers is easier to read."""


def curves(
    key: str,
    windows: Sequence[str],
    series: Mapping[str, Sequence[float | None]],
    centre: tuple[float, Interval | None] | None = None,
) -> Markup:
    """Draw one line per series over the windows, the last one foremost.

    Args:
        key: names the drawing's parts apart from those of others on the page.
        windows: names such as 2019-10-01 or 2019-10-01T13.
        series: values by label; None leaves a gap.
        centre: a mean drawn as a dashed line, with its interval as a band.

    Returns:
        An <svg> element.
    """
    with _drawing(windows) as (axes, svg):
        days = _days(windows)
        if centre:
            _draw_centre(axes, *centre)
        colours = [_SECOND] * (len(series) - 1) + [_ACCENT]
        marker = "o" if len(windows) <= _N_MARKED else None
        for (label, values), colour in zip(series.items(), colours, strict=True):
            heights = [float("nan") if value is None else value for value in values]
            axes.plot(days, heights, color=colour, lw=1.4, marker=marker, ms=3, label=label)
        if len(series) > 1:
            axes.legend(
                loc="lower right", bbox_to_anchor=(1, 1), ncols=len(series), frameon=False,
                borderaxespad=0, handlelength=1.2, reverse=True,
            )  # fmt: skip
    return _themed(svg.getvalue(), key)


def bars(
    key: str, windows: Sequence[str], heights: Sequence[int], is_muted: Sequence[bool]
) -> Markup:
    """Draw one bar per window, muted where `is_muted`; returns an <svg> element."""
    with _drawing(windows) as (axes, svg):
        days = _days(windows)
        width = 0.8 * min(np.diff(days), default=1.0)
        colours = [_SECOND if muted else _ACCENT for muted in is_muted]
        # The hair of an edge closes the seams between hundreds of bars.
        axes.bar(days, heights, width, color=colours, edgecolor=colours, linewidth=0.3)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    return _themed(svg.getvalue(), key)


@contextmanager
def _drawing(windows: Sequence[str]) -> Iterator[tuple[Axes, StringIO]]:
    """Yield the axes of a small figure, and where its SVG stands once the block is left."""
    svg = StringIO()
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(5.2, 2.4), layout="constrained")
        axes = figure.add_subplot()
        yield axes, svg
        ticks = _ticks(windows)
        axes.set_xticks(_days(list(ticks)), list(ticks.values()))
        axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10], min_n_ticks=3))
        figure.savefig(svg, format="svg", transparent=True, metadata=_METADATA)


def _draw_centre(axes: Axes, mean: float, interval: Interval | None) -> None:
    axes.axhline(mean, color=_ACCENT, lw=0.8, ls=(0, (4, 3)))
    if interval:
        axes.axhspan(*interval, color=_ACCENT, alpha=0.12, lw=0)


def _days(windows: Sequence[str]) -> list[float]:
    return [float(date2num(datetime.fromisoformat(window))) for window in windows]


def _ticks(windows: Sequence[str]) -> dict[str, str]:
    """Choose at most 6 windows to name below the axis: midnights where there are enough."""
    midnights = [window for window in windows if datetime.fromisoformat(window).hour == 0]
    named = midnights if len(midnights) > 1 else windows
    step = -(-len(named) // _N_TICKS)
    return {window: _label(datetime.fromisoformat(window)) for window in named[::step]}


def _label(time: datetime) -> str:
    date = f"{time.day} {time:%b}"
    return f"{time:%H}h\n{date}" if time.hour else date


def _themed(svg: str, key: str) -> Markup:
    element = svg[svg.index("<svg") :]
    for placeholder, variable in _VARIABLES.items():
        element = element.replace(placeholder, variable)
    # Ids are unique within a drawing only, namespaces are noise within HTML.
    for reference in ('id="', '"#', "url(#"):
        element = element.replace(reference, f"{reference}{key}-")
    for namespace in (
        ' xmlns:xlink="http://www.w3.org/1999/xlink"',
        ' xmlns="http://www.w3.org/2000/svg"',
    ):
        element = element.replace(namespace, "")
    return Markup(element)  # noqa: S704 - matplotlib has escaped what it drew
