"""Settings that an earlier version had, each with what takes its place."""

REMOVED: dict[str, str] = {
    "evaluation.diversity_by": "removed in 0.3; results/predictions/ has the lists",
    "evaluation.list_metrics": "removed in 0.3; results/predictions/ has the lists",
    "evaluation.segments": "removed in 0.3; results/ranks/ joined with data/windows/ gives them",
    "evaluation.horizon": "removed in 0.3; a model is evaluated on the window after its fit alone",
}
"""Name of the setting, as in params.yaml ("memory.head"): the end of the error that refuses it."""
