"""results/report.html: one page that explains a run, without anything from elsewhere."""

from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from itertools import groupby
from typing import Any, Final

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from dayahead.aggregate.averaging import Average
from dayahead.aggregate.charts import bars, curves
from dayahead.metrics.tables import WindowResult
from dayahead.windows.metadata import WindowEntry, WindowsManifest

Setting = str | int | float | bool | None | Sequence[Any]

_TITLES: Final = {"recall": "Recall", "ndcg": "NDCG", "mrr": "MRR"}


def render_report(
    rows: Sequence[WindowResult],
    summary: Average,
    listing: WindowsManifest,
    settings: Mapping[str, Setting],
    outside: float,
) -> str:
    """Render the report; the same input always gives the same text.

    Args:
        rows: the measured windows.
        summary: their averages.
        listing: the content of windows.json.
        settings: params.yaml flat, keys such as model.n_layer.
        outside: share of all targets that were no candidates.
    """
    page = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    page.filters["metric"] = _title
    template = page.from_string(files(__package__).joinpath("report.html.j2").read_text("utf-8"))
    return template.render(
        rows=rows,
        summary=summary,
        listing=listing,
        settings=settings,
        charts=[*_metric_charts(rows, summary), *_loss_chart(rows)],
        data_charts=[_sessions_chart(listing.windows), _outside_chart(rows)],
        outside=outside,
    )


def _title(name: str) -> str:
    kind, cutoff = name.split("_at_")
    return f"{_TITLES[kind]}@{cutoff}"


def _metric_charts(rows: Sequence[WindowResult], summary: Average) -> Iterator[tuple[str, Markup]]:
    windows = [row.window for row in rows]
    for kind, names in groupby(summary.aod, key=lambda name: name.split("_at_")[0]):
        series = {name: [row.metrics[name] for row in rows] for name in names}
        *_, foremost = series
        centre = (summary.aod[foremost], summary.ci95[foremost])
        labelled = {_title(name): values for name, values in series.items()}
        yield _TITLES[kind], curves(kind, windows, labelled, centre)


def _loss_chart(rows: Sequence[WindowResult]) -> Iterator[tuple[str, Markup]]:
    losses = [row.train_loss for row in rows]
    if any(loss is not None for loss in losses):
        windows = [row.window for row in rows]
        yield "Training loss", curves("loss", windows, {"loss": losses})


def _sessions_chart(entries: Sequence[WindowEntry]) -> tuple[str, Markup]:
    windows = [entry.window for entry in entries]
    sessions = [entry.sessions for entry in entries]
    is_muted = [entry.state != "kept" for entry in entries]
    return "Sessions per window (pale: not used)", bars("sessions", windows, sessions, is_muted)


def _outside_chart(rows: Sequence[WindowResult]) -> tuple[str, Markup]:
    windows = [row.window for row in rows]
    percentages = [100 * row.target_outside for row in rows]
    title = "Targets outside the candidates, %"
    return title, curves("outside", windows, {"outside": percentages})
