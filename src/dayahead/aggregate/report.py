"""results/report.html: one self-contained page that summarizes a run."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from importlib.resources import files
from io import StringIO
from itertools import groupby
from types import MappingProxyType
from typing import Any, Final

import matplotlib as mpl
import numpy as np
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.dates import date2num
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from dayahead.aggregate.averaging import Average, Interval
from dayahead.aggregate.differences import BaselineComparison
from dayahead.core.phases import PhaseRow, idle_seconds
from dayahead.metrics.tables import WindowResult
from dayahead.windows.metadata import WindowEntry, WindowsManifest

Setting = str | int | float | bool | None | Sequence[Any]

_TITLES: Final = {"recall": "Recall", "ndcg": "NDCG", "mrr": "MRR"}
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
_METADATA: Final = dict.fromkeys(("Creator", "Date", "Format", "Type"))
_MAX_TICKS: Final = 6
_MAX_MARKERS: Final = 40
"""With more windows, a line without markers is easier to read."""
_DASHES: Final = ((0, (1, 1.5)), (0, (5, 1.5)))
"""Of the lines of baselines, one after the other."""
_N_LABELS: Final = 4
"""In a row of a legend."""
_N_SHOWN: Final = 15
"""Features of evidence that are not folded away."""


@dataclass(frozen=True)
class Findings:
    """What the report shows of a run."""

    rows: Sequence[WindowResult]
    summary: Average
    outside: float
    """Share of all targets that were not among the candidates."""
    baselines: Sequence[BaselineComparison]
    evidence: Mapping[str, float]
    """Weights of features; empty where the architecture has none."""
    profile: Sequence[PhaseRow] = ()
    """Phases of the fit that was profiled, if one was."""


def render_report(
    findings: Findings, listing: WindowsManifest, settings: Mapping[str, Setting]
) -> str:
    """Render the report of a run; the same input gives the same text.

    `listing` is windows.json, `settings` are params.yaml, flat: {"model.n_layer": 2, ...}.
    """
    page = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    page.filters["metric"] = _title
    template = page.from_string(files(__package__).joinpath("report.html.j2").read_text("utf-8"))
    return template.render(
        rows=findings.rows,
        summary=findings.summary,
        outside=findings.outside,
        baselines=findings.baselines,
        conclusions=_conclusions(findings, str(settings["model.architecture"])),
        n_shown=_N_SHOWN,
        evidence=sorted(findings.evidence.items(), key=lambda entry: -abs(entry[1])),
        profile=findings.profile,
        idle=idle_seconds(findings.profile),
        listing=listing,
        settings=settings,
        charts=_result_charts(findings),
        data_charts=_data_charts(findings.rows, listing.windows),
    )


def _title(name: str) -> str:
    kind, cutoff = name.split("_at_")
    return f"{_TITLES[kind]}@{cutoff}"


def _conclusions(findings: Findings, architecture: str) -> Iterator[str]:
    """Say of each baseline whether the run is above it, by NDCG at the longest cutoff."""
    aod, n_windows = findings.summary.aod, findings.summary.n_windows
    metric = [name for name in aod if name.startswith("ndcg")][-1]
    for baseline in findings.baselines:
        interval = baseline.tests[metric].ci95
        if interval is None:
            finding = f"{architecture} and {baseline.name}: too few windows to tell"
        elif interval[0] > 0:
            finding = f"{architecture} is above {baseline.name} in these windows"
        elif interval[1] < 0:
            finding = f"{architecture} is below {baseline.name} in these windows"
        else:
            finding = f"{architecture} and {baseline.name}: no clear difference in these windows"
        yield (
            f"{finding}. {_title(metric)} is {aod[metric]:.4f} against "
            f"{baseline.aod[metric]:.4f}, higher in {baseline.better[metric]:,} of {n_windows:,}."
        )


def _result_charts(findings: Findings) -> Iterator[tuple[str, Markup]]:
    rows, summary = findings.rows, findings.summary
    windows = [row.window for row in rows]
    for kind, names in groupby(summary.aod, key=lambda name: name.split("_at_")[0]):
        series = {name: [row.metrics[name] for row in rows] for name in names}
        longest = list(series)[-1]
        centre = (summary.aod[longest], summary.ci95[longest])
        labelled = {f"@{name.split('_at_')[1]}": values for name, values in series.items()}
        beside = {
            baseline.name: [row.metrics[longest] for row in baseline.rows]
            for baseline in findings.baselines
        }
        yield _TITLES[kind], curves(kind, windows, labelled, centre, beside)
    losses = [row.train_loss for row in rows]
    if any(loss is not None for loss in losses):
        yield "Training loss", curves("loss", windows, {"loss": losses})


def _data_charts(
    rows: Sequence[WindowResult], entries: Sequence[WindowEntry]
) -> Iterator[tuple[str, Markup]]:
    windows = [entry.window for entry in entries]
    sessions = [entry.sessions for entry in entries]
    is_muted = [entry.state != "kept" for entry in entries]
    yield "Sessions per window (pale: not used)", bars("sessions", windows, sessions, is_muted)
    outside = {"outside": [100 * row.target_outside for row in rows]}
    yield "Targets outside the candidates, %", curves("outside", [r.window for r in rows], outside)


def curves(
    key: str,
    windows: Sequence[str],
    series: Mapping[str, Sequence[float | None]],
    centre: tuple[float, Interval | None] | None = None,
    beside: Mapping[str, Sequence[float]] = MappingProxyType({}),
) -> Markup:
    """Draw one line per series over the windows, the last one in front; return an <svg> element.

    Args:
        key: prefix of the element's ids, unique on the page.
        windows: names such as 2019-10-01, 2019-10-01T13 or 2019-10-01T1304.
        series: values by label; None leaves a gap.
        centre: a mean, drawn as a dashed line, and its interval, drawn as a band.
        beside: values of baselines by label, drawn as grey broken lines behind the others.
    """
    with _drawing(windows) as (axes, svg):
        days = _days(windows)
        if centre:
            mean, interval = centre
            axes.axhline(mean, color=_ACCENT, lw=0.8, ls=(0, (4, 3)))
            if interval:
                axes.axhspan(*interval, color=_ACCENT, alpha=0.12, lw=0)
        for (label, heights), dashes in zip(beside.items(), _DASHES, strict=False):
            axes.plot(days, heights, color=_MUTED, lw=1.2, ls=dashes, label=label)
        colours = [_SECOND] * (len(series) - 1) + [_ACCENT]
        marker = "o" if len(windows) <= _MAX_MARKERS else None
        for (label, values), colour in zip(series.items(), colours, strict=True):
            known = [float("nan") if value is None else value for value in values]
            axes.plot(days, known, color=colour, lw=1.4, marker=marker, ms=3, label=label)
        if (n_labels := len(series) + len(beside)) > 1:
            axes.legend(
                loc="lower right", bbox_to_anchor=(1, 1), ncols=min(n_labels, _N_LABELS),
                frameon=False, borderaxespad=0, handlelength=1.4, columnspacing=1.4, reverse=True,
            )  # fmt: skip
    return _themed(svg.getvalue(), key)


def bars(
    key: str, windows: Sequence[str], heights: Sequence[int], is_muted: Sequence[bool]
) -> Markup:
    """Draw one bar per window, pale where `is_muted`; return an <svg> element."""
    with _drawing(windows) as (axes, svg):
        days = _days(windows)
        width = 0.8 * min(np.diff(days), default=1.0)
        colours = [_SECOND if muted else _ACCENT for muted in is_muted]
        # Thin edges close the seams between hundreds of bars.
        axes.bar(days, heights, width, color=colours, edgecolor=colours, linewidth=0.3)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    return _themed(svg.getvalue(), key)


@contextmanager
def _drawing(windows: Sequence[str]) -> Iterator[tuple[Axes, StringIO]]:
    """Yield the axes of a small figure, and the buffer that gets its SVG after the block."""
    svg = StringIO()
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(5.2, 2.4), layout="constrained")
        axes = figure.add_subplot()
        yield axes, svg
        ticks = _ticks(windows)
        axes.set_xticks(_days(list(ticks)), list(ticks.values()))
        axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10], min_n_ticks=3))
        figure.savefig(svg, format="svg", transparent=True, metadata=_METADATA)


def _days(windows: Sequence[str]) -> list[float]:
    return [float(date2num(datetime.fromisoformat(window))) for window in windows]


def _ticks(windows: Sequence[str]) -> dict[str, str]:
    """Choose at most 6 windows to label on the axis: midnights or full hours if there are several.

    Windows of minutes are labelled 13:04, those of hours 13h, those at midnight by their date.
    """
    starts = {window: datetime.fromisoformat(window) for window in windows}
    hours = [window for window, start in starts.items() if start.minute == 0]
    midnights = [window for window in hours if starts[window].hour == 0]
    labelled = next(
        each for each in (midnights, hours, windows) if len(each) > 1 or each is windows
    )
    step = -(-len(labelled) // _MAX_TICKS)
    has_minutes = any(start.minute for start in starts.values())
    return {window: _label(starts[window], has_minutes) for window in labelled[::step]}


def _label(start: datetime, has_minutes: bool) -> str:
    date = f"{start.day} {start:%b}"
    time = f"{start:%H:%M}" if has_minutes else f"{start:%H}h"
    return f"{time}\n{date}" if start.hour or start.minute else date


def _themed(svg: str, key: str) -> Markup:
    element = svg[svg.index("<svg") :]
    for placeholder, variable in _VARIABLES.items():
        element = element.replace(placeholder, f"var(--{variable})")
    # Ids are unique within a chart only; HTML needs no namespaces.
    element = re.sub(r'id="|"#|url\(#', rf"\g<0>{key}-", element)
    element = re.sub(r' xmlns(:xlink)?="[^"]*"', "", element)
    return Markup(element)  # noqa: S704 - matplotlib escapes its texts
