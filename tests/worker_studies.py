"""What the processes of a test do; a spawned process finds this module by its name."""

import os
import signal
from pathlib import Path
from unittest.mock import patch

import torch

from dayahead.data.batches import Batch
from dayahead.errors import ConfigError
from dayahead.files import write_json
from dayahead.training import protocol
from dayahead.training.learners import GradientLearner
from dayahead.training.processes import Process
from dayahead.training.run import Study
from tiny_settings import compute_config


def run_and_record(process: Process, studies: dict[str, Study], folder: Path) -> None:
    """Run studies; write every step's mean loss and this process's sessions to <name>-<rank>."""
    for name, study in studies.items():
        losses: list[float] = []
        sessions: list[list[int]] = []
        step_of = GradientLearner._step

        def watched(self, batch: Batch, window: str, step: int, step_of=step_of) -> torch.Tensor:
            sums = step_of(self, batch, window, step)
            losses.append(float(sums[0] / sums[1]))  # noqa: B023
            sessions.append(batch.sessions.tolist())  # noqa: B023
            return sums

        with patch.object(GradientLearner, "_step", watched):
            protocol.fit_and_measure(process, study, compute_config())
        record = {"losses": losses, "sessions": sessions}
        write_json(folder / f"{name}-{process.share.rank}.json", record)


def say_who(process: Process, folder: Path) -> None:
    """Write down what this process is told about itself, and a sum over all."""
    total = process.summed(torch.tensor([process.share.rank + 1]))
    record = {
        "world": process.share.world,
        "is_main": process.is_main,
        "threads": torch.get_num_threads(),
        "sum": int(total),
    }
    write_json(folder / f"{process.share.rank}.json", record)


def refuse(process: Process) -> None:
    """Fail in the second process as a user's mistake would; the first one waits for it."""
    if not process.is_main:
        raise ConfigError("model.features: price not among the data set's")
    process.summed(torch.zeros(1))


def die(process: Process) -> None:
    """Be killed in the second process, as for want of memory."""
    if not process.is_main:
        os.kill(os.getpid(), signal.SIGKILL)
    process.summed(torch.zeros(1))
