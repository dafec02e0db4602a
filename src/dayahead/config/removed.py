"""Settings that an earlier version had, each with what takes its place."""

_DATA = "removed in 0.3; nightly.max_session_change and nightly.max_new_items remain"
_METRIC = "removed in 0.3; nightly.max_fall and nightly.baseline_margin remain"
_COMPARED = "removed in 0.3; compare settings with `dayahead compare`, then change them"
REMOVED: dict[str, str] = {
    "loss.triton": "removed in 0.3; the softmax is torch's on every device",
    "evaluation.diversity_by": "removed in 0.3; results/predictions/ has the lists",
    "evaluation.list_metrics": "removed in 0.3; results/predictions/ has the lists",
    "evaluation.segments": "removed in 0.3; results/ranks/ joined with data/windows/ gives them",
    "evaluation.horizon": "removed in 0.3; a model is evaluated on the window after its fit alone",
    "nightly.max_popularity_drift": _DATA,
    "nightly.max_top_item": _DATA,
    "nightly.max_silence": _DATA,
    "nightly.max_catalogue_growth": _DATA,
    "nightly.readmit_after": "removed in 0.3; a raised limit accepts a change that lasts",
    "nightly.max_lead_loss": _METRIC,
    "nightly.max_decline": _METRIC,
    "nightly.max_refresh_fall": "removed in 0.3; nightly.smoke_sessions remains",
    "nightly.champion_margin": "removed in 0.3; nightly.max_settings_loss remains",
    "nightly.min_list_coverage": "removed in 0.3; results/lists.csv has the figures",
    "nightly.max_list_gini": "removed in 0.3; results/lists.csv has the figures",
    "nightly.max_list_popularity": "removed in 0.3; results/lists.csv has the figures",
    "nightly.horizon": _COMPARED,
    "nightly.seeds": _COMPARED,
    "nightly.trials_per_year": _COMPARED,
    "nightly.margin": _COMPARED,
    "nightly.max_recall_loss": _COMPARED,
    "nightly.challengers": _COMPARED,
}
"""Name of the setting, as in params.yaml ("memory.head"): the end of the error that refuses it."""
