"""Utilisation of processor, memory, disk, network and GPUs while a stage runs."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from mlflow.environment_variables import (
    MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING,
    MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL,
)
from mlflow.system_metrics.metrics.cpu_monitor import CPUMonitor
from mlflow.system_metrics.metrics.disk_monitor import DiskMonitor
from mlflow.system_metrics.metrics.gpu_monitor import GPUMonitor
from mlflow.system_metrics.metrics.network_monitor import NetworkMonitor

from dayahead.tracking.outbox import Outbox, never_raising

SECONDS = 10.0
"""Seconds between samples, unless MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL says otherwise."""


@contextmanager
def sampled(outbox: Outbox) -> Iterator[None]:
    """Record samples in the outbox while the block runs.

    MLflow's variables hold: MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING=false turns it off.
    """
    is_over = threading.Event()
    thread = threading.Thread(target=_sample, args=(outbox, is_over), daemon=True)
    if is_on := MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING.get():
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        if is_on:
            thread.join()


@never_raising("the use of the machine is not recorded")
def _sample(outbox: Outbox, is_over: threading.Event) -> None:
    monitors = [CPUMonitor(), DiskMonitor(), NetworkMonitor(), *_of_gpus()]
    seconds = MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL.get() or SECONDS
    # A restarted stage continues the steps of the killed one.
    step = len(outbox.entries("system"))
    has_started = False
    while not is_over.wait(seconds):
        # Before the stage has written its start, no run could take a sample.
        has_started = has_started or bool(outbox.start())
        if not has_started:
            continue
        metrics: dict[str, float] = {}
        for monitor in monitors:
            monitor.collect_metrics()
            metrics |= {f"system/{name}": x for name, x in monitor.aggregate_metrics().items()}
            monitor.clear_metrics()
        outbox.append("system", step=step, metrics=metrics)
        step += 1


def _of_gpus() -> list[GPUMonitor]:
    try:
        return [GPUMonitor()]
    except (ImportError, RuntimeError):  # no driver
        return []
