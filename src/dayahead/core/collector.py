"""Python's garbage collector in a process that imports torch, transformers or MLflow."""

import atexit
import gc

FULL_EVERY = 1_000
"""Collections of the middle generation from one of all objects to the next; by default 10."""
NEW_OBJECTS = 10_000
"""Net number of new objects that triggers a collection; Python's default is 700."""


def collect_rarely() -> None:
    """Reduce the time for garbage collection of objects that are never freed; call before imports.

    Imports create half a million of them. By default the collector takes a quarter of the imports'
    time, and one or two seconds when the process ends, where frozen objects are not collected.
    """
    gc.set_threshold(NEW_OBJECTS)
    atexit.register(gc.freeze)


def freeze_and_collect_rarely() -> None:
    """Collect young objects only, nearly always: a full collection halts a service for a second.

    A service keeps millions of objects. Those that it has when it starts are never collected.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS, 10, FULL_EVERY)
