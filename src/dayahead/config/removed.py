"""Settings that an earlier version had, each with what takes its place."""

REMOVED: dict[str, str] = {
    "evaluation.horizon": "removed in 0.3; a model is evaluated on the window after its fit alone",
}
"""Name of the setting, as in params.yaml ("memory.head"): the end of the error that refuses it."""
