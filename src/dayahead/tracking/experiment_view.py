"""What MLflow's pages show of an experiment: the columns of its runs, and the charts that compare.

The format is that of MLflow's own shared views (tag `mlflow.sharedViewState.<name>`); what a page
does not know there it ignores.
"""

import json
from collections.abc import Sequence
from typing import Any, Final

from dayahead.config.metric_names import title_of

VIEW: Final = "comparison"
"""Name of the view that `Store.page_of` opens. A store keeps the views that it has: change the name
with the content."""
CHANGED_TAG: Final = "changed"
"""Tag with the settings of a run that differ from the defaults."""
# MLflow orders metrics by name, so that MRR would come first.
_COLUMNS: Final = [
    *(f"metrics.`aod_{metric}_at_20`" for metric in ("ndcg", "recall")),
    "params.`dataset`",
    f"tags.`{CHANGED_TAG}`",
    "tags.`error`",
]
_CHARTS: Final = ("ndcg_at_20", "recall_at_20", "mrr_at_20")
_SECTIONS: Final = {
    "averages": "Average over windows",
    "settings": "Settings that differ",
    "windows": "Window by window",
}
_WIDE: Final = "settings"
"""The section with one chart in a row."""
_OTHERS: Final = ("Model metrics", "System metrics")
"""Sections of MLflow's own for all other metrics; folded."""


def _card(kind: str, section: str, name: str, **fields: Any) -> dict[str, Any]:  # noqa: ANN401
    return {
        "type": kind, "uuid": f"{section}-{name}", "metricSectionId": section, "deleted": False,
        "isGenerated": False, "runsCountToCompare": 10, **fields,
    }  # fmt: skip


def _cards() -> list[dict[str, Any]]:
    """Return the charts, section by section: NDCG, recall and MRR in this order."""
    averages = [
        _card(
            "BAR",
            "averages",
            metric.removesuffix("_at_20"),
            metricKey=f"aod_{metric}",
            displayName=title_of(metric),
        )
        for metric in _CHARTS
    ]
    lines = {**{metric: title_of(metric) for metric in _CHARTS}, "train_loss": "Loss"}
    windows = [
        _card(
            "LINE", "windows", key, metricKey=key, selectedMetricKeys=[key], displayName=title,
            lineSmoothness=0, xAxisKey="step", xAxisScaleType="linear", scaleType="linear",
            range={}, yAxisKey="metric", yAxisExpressions=[], selectedXAxisMetricKey="",
            ignoreOutliers=False, useGlobalXaxisKey=True, useGlobalLineSmoothing=True,
        )
        for key, title in lines.items()
    ]  # fmt: skip
    settings = _card(
        "DIFFERENCE", "settings", "table", compareGroups=["Parameters"], baselineColumnUuid="",
        chartName="Settings that differ", showDifferencesOnly=True, showChangeFromBaseline=False,
    )  # fmt: skip
    return [*averages, settings, *windows]


def _sections() -> list[dict[str, Any]]:
    shown: list[dict[str, Any]]
    shown = [
        {"uuid": uuid, "name": name, "display": True, "columns": 1 if uuid == _WIDE else 3}
        for uuid, name in _SECTIONS.items()
    ]
    folded = [{"uuid": name, "name": name, "display": False} for name in _OTHERS]
    return [{**each, "isReordered": True, "deleted": False} for each in (*shown, *folded)]


_STATE: Final = {
    "selectedColumns": _COLUMNS,
    "orderByKey": "attributes.start_time",
    "orderByAsc": False,
    "startTime": "ALL",
    "lifecycleFilter": "Active",
    "modelVersionFilter": "All Runs",
    "searchFilter": "",
    "chartsSearchFilter": "",
    "compareRunCharts": _cards(),
    "compareRunSections": _sections(),
    "isAccordionReordered": True,
    "datasetsFilter": [],
    "runsExpanded": {},
    "runsPinned": [],
    "runsHidden": [],
}
EXPERIMENT_TAGS: Final = {
    "mlflow.experimentKind": "custom_model_development",
    "mlflow.experiment.primaryMetric.name": "aod_ndcg_at_20",
    f"mlflow.sharedViewState.{VIEW}": json.dumps(_STATE),
}
"""Tags that make MLflow's pages show an experiment as a table of models and metrics, no traces."""


def changed_text(changes: Sequence[tuple[str, str]]) -> str:
    """Return names and values of changed settings as the tag has them, without their sections."""
    return " ".join(f"{name.rpartition('.')[2]}={value}" for name, value in changes) or "defaults"
