"""The profile of a window: where the time of its fit and evaluation goes, and traces of steps."""

import gzip
import json
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from dayahead.config.machine import ProfileConfig
from dayahead.core.files import write_csv, written_whole
from dayahead.core.phases import (
    STEP,
    Phase,
    PhaseRow,
    Stopwatch,
    add_rows,
    idle_seconds,
    phase,
    read_phases,
    write_phases,
)
from dayahead.distributed.process import Process
from dayahead.windows.folder import Window

FOLDER, PHASES = "profile", "phases.csv"
"""Names under results/."""
PROFILER = "profiler"
"""The phase in which a trace is started and written."""
NSYS = "NSYS_PROFILING_SESSION_ID"
"""Variable that nsys sets; its profiler and torch's cannot both use CUDA's interface."""
_log = logging.getLogger(__name__)


class WindowProfile:
    """Profiles the fit of the window that the settings name, if any, and its evaluation.

    The main process writes `folder`; the others have nothing to do.
    """

    def __init__(self, config: ProfileConfig, process: Process, folder: Path) -> None:
        self.config = config
        self.folder = folder
        self.tracer = StepTracer(config, process.device, folder)
        self.watch = Stopwatch(self.tracer, counts_cpu=True)
        self.is_used = process.is_main

    def is_of(self, window: Window) -> bool:
        """Whether this is the window profiled: then its fit and evaluation are not from a cache."""
        return window.name == self.config.window

    def of(self, window: Window) -> AbstractContextManager[None]:
        """Profile a block, the fit or the evaluation of this window."""
        is_profiled = self.is_used and self.is_of(window)
        return self.watch.running() if is_profiled else nullcontext()

    def finish(self) -> None:
        """Write the table of phases, if there is one, and print it."""
        root = self.watch.root
        if not root.calls:
            return
        add_rows(self.watch.rows())
        # Rows for the stage's table first: that one includes the time of the traces.
        seconds, _ = root.remove(PROFILER)
        rows = self.watch.rows()
        write_phases(self.folder / PHASES, rows)
        lines = [
            f"profile of the fit of {self.config.window} and the evaluation of its model:",
            *phase_table(rows),
            *self._about_steps(rows),
            f"The traces took {seconds:.1f} s, which the table leaves out.",
        ]
        _log.info("\n".join(lines))

    def _about_steps(self, rows: Sequence[PhaseRow]) -> Iterator[str]:
        """Describe which steps of each loop its trace holds."""
        first, end = self.config.first_step, self.config.first_step + self.config.steps
        for row in rows:
            loop, _, name = row.phase.rpartition("/")
            if name != STEP:
                continue
            if row.calls <= first:
                yield f"{loop}: no trace, profile.first_step is {first} of {row.calls:,} steps"
            elif self.tracer.is_tracing:
                last = min(end, row.calls) - 1
                path = self.folder / trace_name(loop)
                yield f"{loop}: steps {first} to {last} of {row.calls:,} in {path}"


class StepTracer:
    """Traces some steps of each loop with torch.profiler, its ranges named as the phases are.

    On a GPU they are NVTX ranges too, between cudaProfilerStart and -Stop, and the host waits at
    the end of every phase, so that a phase's seconds are those of its work. Under nsys, which
    records the same, torch.profiler stays off and nobody waits.
    """

    def __init__(self, config: ProfileConfig, device: torch.device, folder: Path) -> None:
        self.first = config.first_step
        self.end = config.first_step + config.steps
        self.folder = folder
        self.is_cuda = device.type == "cuda"
        self.is_tracing = NSYS not in os.environ
        self.traced: Phase | None = None
        """The phase of the steps that are traced now."""
        self._profiler: profile | None = None
        self._ranges: list[ExitStack] = []

    def enter(self, entered: Phase) -> None:
        """Start a trace before its first step; open a range."""
        if entered.name == PROFILER:
            return
        self._wait()
        if entered.name == STEP and entered.calls == self.first and self.traced is None:
            self._start(entered)
        if self.traced is not None:
            self._ranges.append(self._range(entered.name))

    def leave(self, left: Phase) -> None:
        """Close the range; end the trace after its last step, or where the loop ends."""
        if left.name == PROFILER:
            return
        self._wait()
        is_whole = left is self.traced and left.calls == self.end
        if self._ranges:
            self._ranges.pop().close()
        elif self.traced is not None:  # the loop around the steps
            is_whole = True
        if is_whole:
            self._stop()

    def _range(self, name: str) -> ExitStack:
        opened = ExitStack()
        opened.enter_context(record_function(name))
        if self.is_cuda:
            opened.enter_context(torch.cuda.nvtx.range(name))
        return opened

    def _wait(self) -> None:
        if self.is_cuda and self.is_tracing:
            torch.cuda.synchronize()

    def _start(self, step: Phase) -> None:
        self.traced = step
        with phase(PROFILER):
            if self.is_tracing:
                os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # it logs each start and stop
                gpu = [ProfilerActivity.CUDA] if self.is_cuda else []
                self._profiler = profile(
                    activities=[ProfilerActivity.CPU, *gpu],
                    record_shapes=True,
                    profile_memory=True,
                    acc_events=True,
                )
                self._profiler.start()
            if self.is_cuda:
                torch.cuda.profiler.start()  # type: ignore[no-untyped-call]

    def _stop(self) -> None:
        assert self.traced is not None
        assert self.traced.parent is not None
        loop, self.traced = self.traced.parent.path, None
        with phase(PROFILER):
            if self.is_cuda:
                torch.cuda.profiler.stop()  # type: ignore[no-untyped-call]
            if self._profiler is not None:
                self._profiler.stop()
                write_trace(self._profiler, self.folder / trace_name(loop))
                write_operators(self._profiler, self.folder / f"operators-{_in_file(loop)}.csv")
                self._profiler = None


def trace_name(loop: str) -> str:
    """Return the name of the main process's trace of the steps in a phase."""
    return f"trace-{_in_file(loop)}-rank0.json.gz"


def _in_file(loop: str) -> str:
    return loop.replace("/", "-").replace(" ", "-")


def write_trace(found: profile, path: Path) -> None:
    """Write a trace for Perfetto, in which the memory allocated is a track."""
    with written_whole(path) as temporary:
        found.export_chrome_trace(str(temporary))
        trace = json.loads(temporary.read_text(encoding="utf-8"))
        events = trace["traceEvents"]
        # Perfetto draws counter events as a track, but not the profiler's own memory events.
        events += [_memory_counter(each) for each in events if each["name"] == "[memory]"]
        with gzip.open(temporary, "wt", encoding="utf-8") as file:
            json.dump(trace, file)


def _memory_counter(event: dict[str, Any]) -> dict[str, Any]:
    about = event["args"]
    device = "host" if about["Device Type"] == 0 else f"GPU {about['Device Id']}"
    return {
        "ph": "C",
        "name": f"memory allocated on {device}",
        "pid": event["pid"],
        "ts": event["ts"],
        "args": {"MB": about["Total Allocated"] / 1e6},
    }


def write_operators(found: profile, path: Path) -> None:
    """Write the time of the traced steps by operator, the longest first."""
    head = ("operator", "calls", "self_cpu_ms", "cpu_ms", "self_gpu_ms", "self_cpu_mb")
    operators = [each for each in found.key_averages() if not each.is_user_annotation]
    operators.sort(key=lambda each: -(each.self_cpu_time_total + each.self_device_time_total))
    rows: list[Sequence[object]] = [head]
    for each in operators:
        times = each.self_cpu_time_total, each.cpu_time_total, each.self_device_time_total
        figures = (*(time / 1e3 for time in times), each.self_cpu_memory_usage / 1e6)
        rows.append([each.key, each.count, *(round(figure, 3) for figure in figures)])
    write_csv(path, rows)


def profile_metrics(results: Path) -> dict[str, float]:
    """Return the seconds of each phase of a profile: {"profile/fit/network": 1.5, ...}, if any."""
    path = results / FOLDER / PHASES
    rows = read_phases(path) if path.exists() else []
    return {f"profile/{row.phase}": row.seconds for row in rows}


def phase_table(rows: Sequence[PhaseRow]) -> list[str]:
    """Return the lines of a table of phases for the terminal."""
    whole = rows[0].seconds
    lines = [f"{'phase':34s} {'seconds':>9s} {'own':>9s} {'own %':>6s} {'calls':>8s} {'cores':>6s}"]
    for row in rows:
        name = "  " * row.depth + row.phase.rpartition("/")[2]
        cores = row.cpu_seconds / row.seconds if row.seconds else 0.0
        lines.append(
            f"{name:34s} {row.seconds:9.3f} {row.own_seconds:9.3f} "
            f"{100 * row.own_seconds / whole:6.1f} {row.calls:8,} {cores:6.2f}"
        )
    idle = idle_seconds(rows)
    lines.append(f"{'idle, of these':34s} {'':9s} {idle:9.3f} {100 * idle / whole:6.1f}")
    return lines
