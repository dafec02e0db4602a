"""Functions that tests run in worker processes; a spawned process imports them from here."""

import os
import signal
import time
from pathlib import Path
from unittest.mock import patch

import torch

from dayahead.core.errors import ConfigError
from dayahead.core.files import write_json
from dayahead.distributed.process import Process
from dayahead.train.batches import Batch
from dayahead.train.results import EvaluatedWindow
from dayahead.train.run import Fit, Run
from dayahead.train.stage import run_protocol
from dayahead.train.study import Study
from dayahead.train.trainers import GradientTrainer
from dayahead.windows.folder import Window


def run_and_record(process: Process, studies: dict[str, Study], folder: Path) -> None:
    """Run studies; write every step's mean loss and this process's sessions to <name>-<rank>."""
    for name, study in studies.items():
        losses: list[float] = []
        sessions: list[list[int]] = []
        step_of = GradientTrainer._step

        def recorded(self, batch: Batch, window: str, step: int, step_of=step_of) -> torch.Tensor:
            sums = step_of(self, batch, window, step)
            losses.append(float(sums[0] / sums[1]))  # noqa: B023
            sessions.append(batch.sessions.tolist())  # noqa: B023
            return sums

        with patch.object(GradientTrainer, "_step", recorded):
            run_protocol(process, study)
        record = {"losses": losses, "sessions": sessions}
        write_json(folder / f"{name}-{process.rank.index}.json", record)


def write_process_info(process: Process, folder: Path) -> None:
    """Write what this process knows of itself, and a sum over all processes."""
    total = process.all_reduce(torch.tensor([process.rank.index + 1]))
    info = {
        "world": process.rank.world_size,
        "is_main": process.is_main,
        "threads": torch.get_num_threads(),
        "sum": int(total),
    }
    write_json(folder / f"{process.rank.index}.json", info)


def write_cores(process: Process, folder: Path) -> None:
    """Write which cores this process may run on, and how many threads it uses."""
    info = {"cores": sorted(os.sched_getaffinity(0)), "threads": torch.get_num_threads()}
    write_json(folder / f"{process.rank.index}.json", info)


def write_turns(process: Process, folder: Path, studies: dict[str, list[int]]) -> None:
    """Write what every process gets of each list of results, of which it computes its own."""
    for name, sizes in studies.items():
        results = torch.load(folder / f"{name}.pt", weights_only=True)
        own = iter(results[process.rank.index :: process.rank.world_size])
        found = [list(each) for each in process.in_turns(own, sizes)]
        torch.save(found, folder / f"{name}-{process.rank.index}.pt")


def kill_second(process: Process) -> None:
    """Kill the second process with SIGKILL, as if memory had run out."""
    if not process.is_main:
        os.kill(os.getpid(), signal.SIGKILL)
    process.all_reduce(torch.zeros(1))


def kill_second_once(process: Process, folder: Path) -> None:
    """Kill the second process the first time; write the processes' info the second time."""
    is_first = not (folder / "killed").exists()
    process.all_reduce(torch.zeros(1))
    if is_first and not process.is_main:
        (folder / "killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    write_process_info(process, folder)


def raise_in_second(process: Process) -> None:
    """Raise in the second process as for a user's mistake; the first one waits for it."""
    if not process.is_main:
        raise ConfigError("model.features: price not among the data set's")
    process.all_reduce(torch.zeros(1))


def fit_and_die_once(process: Process, study: Study) -> None:
    """Kill the second process when it evaluates the second window for the first time."""
    died = study.results.parent / "died"
    evaluate = Run.evaluate
    windows: list[str] = []

    def dying(self: Run, window: Window, fit: Fit) -> EvaluatedWindow:
        windows.append(window.name)
        if len(windows) == 2 and not process.is_main and not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return evaluate(self, window, fit)

    with patch.object(Run, "evaluate", dying):
        run_protocol(process, study)


def sleeping(_: Study) -> None:
    """Take two minutes."""
    time.sleep(120)


def killed(_: object) -> None:
    """Die as a process does that the system kills."""
    os.kill(os.getpid(), signal.SIGKILL)
