"""Python's garbage collector in a process that imports torch, transformers or MLflow."""

import atexit
import gc

NEW_OBJECTS = 10_000
"""Net number of new objects that triggers a collection; Python's default is 700."""


def collect_rarely() -> None:
    """Reduce the time for garbage collection of objects that are never freed; call before imports.

    Imports create half a million of them. By default the collector takes a quarter of the imports'
    time, and one or two seconds when the process ends, where frozen objects are not collected.
    """
    gc.set_threshold(NEW_OBJECTS)
    atexit.register(gc.freeze)
