"""Settings that an earlier version had, each with what takes its place."""

REMOVED: dict[str, str] = {}
"""Name of the setting, as in params.yaml ("memory.head"): the end of the error that refuses it."""
