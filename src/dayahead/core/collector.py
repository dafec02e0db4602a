"""Python's garbage collector in a process that imports torch, transformers or MLflow."""

import atexit
import gc

NEW_OBJECTS = 10_000
"""How many more objects than were freed start a collection; Python's default is 700."""


def collect_rarely() -> None:
    """Save a process the time to look at objects that it never frees: call it before the imports.

    Imports make half a million of them. By default the collector takes a quarter of the imports'
    time, and one or two seconds more when the process ends; frozen objects are not collected then.
    """
    gc.set_threshold(NEW_OBJECTS)
    atexit.register(gc.freeze)
