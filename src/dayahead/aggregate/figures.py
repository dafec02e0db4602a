"""The charts of the report and their titles."""

from collections.abc import Iterator
from itertools import groupby

from markupsafe import Markup

from dayahead.aggregate.charts import bars, curves
from dayahead.aggregate.findings import Findings
from dayahead.aggregate.window_items import N_TOP
from dayahead.config.metric_names import title_of

Charts = Iterator[tuple[str, Markup]]


def metric_charts(findings: Findings) -> Charts:
    """Draw each metric at its longest cutoff, window by window, of the run and of all others."""
    summary = findings.summary
    windows = [row.window for row in findings.rows]
    for kind, names in groupby(summary.aod, key=lambda name: name.split("_at_")[0]):
        name = list(names)[-1]
        own = {findings.architecture: [row.metrics[name] for row in findings.rows]}
        centre = (summary.aod[name], summary.ci95[name])
        beside = {
            each.name: [row.metrics[name] for row in each.rows] for each in findings.baselines
        }
        yield title_of(name), curves(kind, windows, own, centre, beside)
    name = findings.metric
    minus = {
        each.name: [
            own.metrics[name] - row.metrics[name]
            for own, row in zip(findings.rows, each.rows, strict=True)
        ]
        for each in findings.baselines
    }
    others = next(iter(minus)) if len(minus) == 1 else "the others"
    title = f"{title_of(name)}, {findings.architecture} minus {others}"
    yield title, curves("minus", windows, {}, (0.0, None), minus)


def training_charts(findings: Findings) -> Charts:
    """Draw the loss of each fit."""
    losses = [row.train_loss for row in findings.rows]
    if any(loss is not None for loss in losses):
        windows = [row.window for row in findings.rows]
        yield "Mean loss of each fit", curves("loss", windows, {"loss": losses})


def data_charts(findings: Findings) -> Charts:
    """Draw sessions, items, drift and targets outside the candidates, window by window."""
    entries, items = findings.listing.windows, findings.items
    yield (
        "Sessions per window (pale: not used)",
        bars(
            "sessions",
            [entry.window for entry in entries],
            [entry.sessions for entry in entries],
            [entry.state != "kept" for entry in entries],
        ),
    )
    windows = [each.window for each in items]
    counts = {"all": [each.n_items for each in items], "new": [each.n_new for each in items]}
    yield "Items per window", curves("items", windows, counts)
    kept = [None if each.kept is None else 100 * each.kept for each in items]
    yield f"Drift: top {N_TOP} items kept, %", curves("drift", windows, {"kept": kept})
    outside = {"outside": [100 * row.target_outside for row in findings.rows]}
    yield (
        "Targets outside the candidates, %",
        curves("outside", [row.window for row in findings.rows], outside),
    )
