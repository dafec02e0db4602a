"""One process, two and four on hours of G1: how far apart they come, and who sees which session.

Fitted on 2017-10-02T00, T01 and T02 in 110 steps each, measured on the hour after each, all its
sessions; float32, one thread a process; settings of params.yaml, or of a preset but for its
windows, in either case without dropout. Asked is, of 2 and of 4 processes against 1,

loss       within 1e-5 relative at each of the first 300 steps
ranks      at least 99.9 % of a window's the same
AOD        within 5e-4, every metric
sessions   every one of a window is fitted once a pass and measured once, by one process alone

Beside it stands `bit`: one process whose item rows all begin one bit off, which tells what rounding
comes to by itself. At the presets' rates it stays where it is; at a rate near the most that a model
bears, as the 2e-3 of params.yaml is on G1, every step multiplies it, on one process as on several.
So what `params` comes to is told, and only its AOD is asked for.

`dropout` is params.yaml with model.dropout .3, where only distributions agree: AOD of 2 processes
within the mean of one process over 3 seeds, give or take twice their standard deviation.

Command: DAYAHEAD_DATA=... python benchmarks/agreement.py [params] [g1/gpt2-clm] [...] [dropout]
"""

import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from dayahead.config.loading import read_yaml
from dayahead.config.params import Params, load_params
from dayahead.core.columns import SESSION_ID
from dayahead.core.files import read_json, write_json
from dayahead.distributed.launch import run_processes
from dayahead.distributed.process import Process, Rank
from dayahead.metrics.tables import read_ranks, read_windows
from dayahead.model import embeddings as tables
from dayahead.model.embeddings import initial_rows
from dayahead.train.batches import Batch
from dayahead.train.data_loading import Loader
from dayahead.train.run import Study
from dayahead.train.stage import run_protocol, study_of
from dayahead.train.trainers import GradientTrainer
from dayahead.windows.folder import Window, WindowFolder
from facts import machine_facts
from scratch_project import PROJECT, Scratch

ALL = ("params", "g1/gpt2-clm", "g1/xlnet-mlm", "dropout")
LOG = datetime(2017, 10, 1, tzinfo=UTC), datetime(2017, 10, 2, 4, tzinfo=UTC)
SETTINGS: dict[str, dict[str, Any]] = {
    "window": {"unit": "hour", "first": "2017-10-02T00", "last": "2017-10-02T03"},
    "model": {"dropout": 0.0},
    "training": {"steps_per_window": 110, "precision": "float32", "fit_last": False},
    "evaluation": {"split": "all"},
    "compute": {"threads": 1, "device": "cpu"},
}
N_STEPS, LOSS, RANKS, AOD = 300, 1e-5, 0.999, 5e-4
TOLD = (1, 10, 30, 100, 200, 300)
"""Steps whose gap in loss is printed."""
DROPOUT, SEEDS = 0.3, (1, 2, 3)


@dataclass(frozen=True)
class Outcome:
    """What a study came to."""

    losses: list[float]
    """Mean over targets, step by step."""
    ranks: Mapping[str, Any]
    """Of each window's targets."""
    aod: Mapping[str, float]


def recorded(process: Process, study: Study, params: Params, is_off: bool) -> None:
    """Do a study; write each step's loss, and the sessions that this process went through."""
    losses: list[float] = []
    fitted: dict[str, list[list[int]]] = defaultdict(list)
    evaluated: dict[str, list[int]] = defaultdict(list)
    step_of, batches_of, rows_of = GradientTrainer._step, Loader.evaluation_batches, initial_rows

    def step(self: GradientTrainer, batch: Batch, window: str, number: int) -> Tensor:
        sums = step_of(self, batch, window, number)
        losses.append(float(sums[0] / sums[1]))
        fitted[window].append(_real(batch))
        return sums

    def batches(self: Loader, window: Window, rank: Rank) -> Iterator[Batch]:
        for batch in batches_of(self, window, rank):
            evaluated[window.name] += _real(batch)
            yield batch

    def rows(*about: Any) -> Tensor:  # noqa: ANN401
        given = rows_of(*about)
        return torch.nextafter(given, torch.tensor(torch.inf)) if is_off else given

    with (
        patch.object(GradientTrainer, "_step", step),
        patch.object(Loader, "evaluation_batches", batches),
        patch.object(tables, "initial_rows", rows),
    ):
        run_protocol(process, study, params.compute)
    record = {"losses": losses, "fitted": fitted, "evaluated": evaluated}
    write_json(study.results / f"{process.rank.index}.json", record)


def _real(batch: Batch) -> list[int]:
    """Places of a batch's sessions in their file, without the rows that fill it up."""
    return [place for place in batch.sessions.tolist() if place >= 0]


def outcome(folder: Path, params: Params, n_processes: int, *, is_off: bool = False) -> Outcome:
    """Do a study on so many processes, with nothing in the store."""
    out = Path(tempfile.mkdtemp(dir=folder))
    study = study_of(params, folder / "data" / "windows", out, out / "models")
    study = replace(study, store=out / "store")
    compute = replace(params.compute, processes=n_processes)
    run_processes(recorded, compute, study, params, is_off)
    records = [read_json(out / f"{rank}.json") for rank in range(n_processes)]
    add_up(records, WindowFolder(study.windows), params)
    rows = read_windows(out / "windows.csv", params.evaluation.cutoffs)
    return Outcome(
        losses=records[0]["losses"],
        ranks={row.window: read_ranks(out, row.window).ranks for row in rows},
        aod={name: statistics.mean(r.metrics[name] for r in rows) for name in rows[0].metrics},
    )


def add_up(records: list[dict[str, Any]], store: WindowFolder, params: Params) -> None:
    """See that the processes shared every window's sessions out, in each pass and in measuring."""
    windows = {window.name: window for window in store.windows}
    for name in records[0]["fitted"]:
        n_sessions = store.n_sessions(windows[name], "train")
        n_steps = -(-n_sessions // params.training.batch_size)
        steps = [each["fitted"][name] for each in records]
        for begin in range(0, len(steps[0]), n_steps):
            parts = chain.from_iterable(each[begin : begin + n_steps] for each in steps)
            found = sorted(chain.from_iterable(parts))
            is_whole = begin + n_steps <= len(steps[0])
            assert len(found) == len(set(found)), f"{name}: a session twice in a pass"
            assert not is_whole or found == list(range(n_sessions)), f"{name}: one is missing"
    for name in records[0]["evaluated"]:
        n_sessions = len(store.read(windows[name], params.evaluation.split, [SESSION_ID]))
        every = chain.from_iterable(each["evaluated"][name] for each in records)
        assert sorted(every) == list(range(n_sessions)), f"{name}: not each measured once"


def compared(name: str, alone: Outcome, other: Outcome, *, is_aod_all: bool) -> bool:
    """Print how far apart two came; whether that is as near as is asked."""
    pairs = zip(alone.losses, other.losses, strict=True)
    gaps = [abs(a - b) / abs(a) for a, b in pairs][:N_STEPS]
    same = [float((alone.ranks[w] == other.ranks[w]).mean()) for w in alone.ranks]
    apart = max(abs(alone.aod[metric] - other.aod[metric]) for metric in alone.aod)
    at = ", ".join(f"{n}: {gaps[n - 1]:.0e}" for n in TOLD)
    is_near = apart <= AOD and (is_aod_all or (max(gaps) <= LOSS and min(same) >= RANKS))
    print(
        f"{name}: loss within {max(gaps):.1e} over {N_STEPS} steps ({at}); ranks "
        f"{', '.join(f'{100 * share:.2f}' for share in same)} % the same; AOD within {apart:.1e}"
        f"{'' if is_near else ': NOT as near as asked'}",
        flush=True,
    )
    return is_near


def agreement(folder: Path, params: Params, name: str) -> bool:
    """Without dropout, on 1, 2 and 4 processes."""
    others = {"bit": (1, True), "2 processes": (2, False), "4 processes": (4, False)}
    alone = outcome(folder, params, 1)
    near = []
    for other, (n_processes, is_off) in others.items():
        came = outcome(folder, params, n_processes, is_off=is_off)
        near.append(compared(f"{name}, {other}", alone, came, is_aod_all=name == "params"))
    return all(near)


def dropout(folder: Path, params: Params) -> bool:
    """The same seeds with dropout on one process and on two."""
    params = replace(params, model=replace(params.model, dropout=DROPOUT))
    seeded = [replace(params, training=replace(params.training, seed=seed)) for seed in SEEDS]
    alone, together = ([outcome(folder, each, n).aod for each in seeded] for n in (1, 2))
    is_near = True
    for metric in alone[0]:
        ones, twos = ([each[metric] for each in side] for side in (alone, together))
        mean, spread = statistics.mean(ones), statistics.stdev(ones)
        within = [abs(value - mean) <= 2 * spread for value in twos]
        is_near &= all(within)
        print(
            f"dropout, {metric}: 1 process {min(ones):.4f} to {max(ones):.4f}, mean {mean:.4f}, "
            f"sd {spread:.4f}; 2 processes {', '.join(f'{value:.4f}' for value in twos)}: "
            f"{sum(within)} of {len(twos)} within 2 sd",
            flush=True,
        )
    return is_near


def settings(project: Scratch, name: str) -> Params:
    """Those of params.yaml, with a preset's over them where one is named."""
    preset = PROJECT / "presets" / f"{name}.yaml"
    changes = read_yaml(preset) if "/" in name else {}
    project.set("params.yaml", {key: changes[key] for key in changes if key != "window"})
    project.set("params.yaml", SETTINGS)
    return load_params(project.folder / "params.yaml")


def main() -> None:
    """Do the parts named, or all."""
    names = sys.argv[1:] or ALL
    print(f"{machine_facts()}\npython benchmarks/agreement.py {' '.join(names)}", flush=True)
    near = []
    for name in names:
        with tempfile.TemporaryDirectory() as root:
            project = Scratch.begun(Path(root), SETTINGS)
            project.add_clicks(*LOG)
            project.prepare()
            params = settings(project, name)
            if name == "dropout":
                near.append(dropout(project.folder, params))
            else:
                near.append(agreement(project.folder, params, name))
    assert all(near), "further apart than asked"


if __name__ == "__main__":
    main()
