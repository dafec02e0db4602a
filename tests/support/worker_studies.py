"""What the processes of a test do; a spawned process finds this module by its name."""

import os
import signal
from pathlib import Path
from unittest.mock import patch

import torch

from dayahead.core.errors import ConfigError
from dayahead.core.files import write_json
from dayahead.distributed.process import Process
from dayahead.train import stage as protocol
from dayahead.train.batches import Batch
from dayahead.train.results import EvaluatedWindow
from dayahead.train.run import Fit, Run, Study
from dayahead.train.trainers import GradientTrainer
from dayahead.windows.folder import Window


def run_and_record(process: Process, studies: dict[str, Study], folder: Path) -> None:
    """Run studies; write every step's mean loss and this process's sessions to <name>-<rank>."""
    for name, study in studies.items():
        losses: list[float] = []
        sessions: list[list[int]] = []
        step_of = GradientTrainer._step

        def watched(self, batch: Batch, window: str, step: int, step_of=step_of) -> torch.Tensor:
            sums = step_of(self, batch, window, step)
            losses.append(float(sums[0] / sums[1]))  # noqa: B023
            sessions.append(batch.sessions.tolist())  # noqa: B023
            return sums

        with patch.object(GradientTrainer, "_step", watched):
            protocol.fit_and_measure(process, study)
        record = {"losses": losses, "sessions": sessions}
        write_json(folder / f"{name}-{process.rank.index}.json", record)


def say_who(process: Process, folder: Path) -> None:
    """Write down what this process is told about itself, and a sum over all."""
    total = process.all_reduce(torch.tensor([process.rank.index + 1]))
    record = {
        "world": process.rank.world_size,
        "is_main": process.is_main,
        "threads": torch.get_num_threads(),
        "sum": int(total),
    }
    write_json(folder / f"{process.rank.index}.json", record)


def die_once(process: Process, folder: Path) -> None:
    """Be killed in the second process the first time; say who is there the second time."""
    is_first = not (folder / "died").exists()
    process.all_reduce(torch.zeros(1))
    if is_first and not process.is_main:
        (folder / "died").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    say_who(process, folder)


def fit_and_die_once(process: Process, study: Study) -> None:
    """Be killed in the second process when the second window is measured for the first time."""
    died = study.results.parent / "died"
    measure = Run.measure
    places: list[str] = []

    def dying(self: Run, window: Window, fit: Fit) -> EvaluatedWindow:
        places.append(window.name)
        if len(places) == 2 and not process.is_main and not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return measure(self, window, fit)

    with patch.object(Run, "measure", dying):
        protocol.fit_and_measure(process, study)


def refuse(process: Process) -> None:
    """Fail in the second process as a user's mistake would; the first one waits for it."""
    if not process.is_main:
        raise ConfigError("model.features: price not among the data set's")
    process.all_reduce(torch.zeros(1))


def die(process: Process) -> None:
    """Be killed in the second process, as for want of memory."""
    if not process.is_main:
        os.kill(os.getpid(), signal.SIGKILL)
    process.all_reduce(torch.zeros(1))


def note_cores(process: Process, folder: Path) -> None:
    """Write down which cores this process may run on, and how many threads it takes."""
    record = {"cores": sorted(os.sched_getaffinity(0)), "threads": torch.get_num_threads()}
    write_json(folder / f"{process.rank.index}.json", record)
