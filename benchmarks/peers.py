"""Sessions per second in training and evaluation, against Transformers4Rec and RecTools' SASRec.

All train on the same sessions of 2 to 20 events (mean about 5) over 20,000 items, with d 128, 2
layers, 4 heads, batches of 256, the dropout of params.yaml, as many threads, and AdamW. Each runs
in its own environment (`make build/peers/rectools/.ready` builds RecTools') as a process that
stays, and they take turns: in each turn an epoch of training and a pass of evaluation, in which the
last item of each session is looked for among all items. Figures are medians of turns, ratios are
taken within a turn. Ours runs in its default precision and in float32, which is the peers'.

Loss or recall@20 after the last turn tells whether a program does its work at all. The programs
draw different weights and orders; RecTools makes fewer steps.

Command: python benchmarks/peers.py
"""

import argparse
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from tabulate import tabulate

from dayahead.core.columns import ITEM_ID, N_RESERVED
from history import HISTORY, Figure, record
from measurement import n_cores, print_header, time_in_turns
from worker import Answer, Worker
from workload import LONGEST, default_params, zipf_sessions

N_ITEMS = 20_000
BATCH = 256
EVALUATION_BATCH = 512
HERE = Path(__file__).parent
ENVIRONMENTS = HERE.parent / "build" / "peers"
WORKS = ("training", "evaluation")
PAUSE = 1.0
"""Seconds between two turns, in which ours sees that the cores are free (`openmp.watch_cores`)."""


@dataclass(frozen=True)
class Program:
    """One side of the comparison."""

    name: str
    python: Path
    file: Path
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Those that are its own."""


def peer(name: str, **settings: object) -> Program:
    """Return the program of a peer, in its environment."""
    python = ENVIRONMENTS / name / "bin" / "python"
    return Program(name, python, HERE / f"{name}_worker.py", settings)


OURS = tuple(
    Program(name, Path(sys.executable), HERE / "dayahead_worker.py", {"precision": precision})
    for name, precision in (("dayahead", "auto"), ("dayahead float32", "float32"))
)
RECTOOLS = peer("rectools", architecture="sasrec", most_steps=2)
"""SASRec is its causal transformer. Two steps of training in a turn, as its loss is over all 20
positions of each session, padding included."""
STUDIES = {
    ("gpt2", "clm"): (*OURS, peer("transformers4rec"), RECTOOLS),
    ("xlnet", "mlm"): (*OURS, peer("transformers4rec")),
}
"""Who takes turns, by architecture and task."""


def shared_settings(path: Path, n_sessions: int, threads: int) -> dict[str, Any]:
    """Write the sessions; return the settings that all programs have."""
    sessions = zipf_sessions(n_sessions, LONGEST, N_ITEMS)
    items = (sessions.columns[ITEM_ID] - N_RESERVED).numpy()
    np.savez(path, items=items, offsets=sessions.offsets.numpy())
    params = default_params()
    training = params.training
    return {
        "sessions": str(path),
        "n_items": N_ITEMS,
        "longest": LONGEST,
        "batch_size": BATCH,
        "evaluation_batch_size": EVALUATION_BATCH,
        "threads": threads,
        "d_model": 128,
        "n_layer": 2,
        "n_head": 4,
        "dropout": params.model.dropout,
        "mlm_probability": params.task.mlm_probability,
        "learning_rate": training.learning_rate,
        "weight_decay": training.weight_decay,
        "max_grad_norm": training.max_grad_norm,
        "seed": training.seed,
        "most_steps": None,
    }


def compare(
    programs: Sequence[Program], given: Mapping[str, Any], rounds: int, logs: Path
) -> dict[str, list[dict[str, Answer]]]:
    """Return the answers of each round after one to warm up, by work and program."""
    with ExitStack() as running:
        workers = {
            program.name: running.enter_context(
                Worker(
                    [program.python],
                    program.file,
                    {**given, **program.settings},
                    logs / f"{program.name.replace(' ', '-')}.log",
                )
            )
            for program in programs
        }
        return {work: time_in_turns(workers, rounds, partial(_turn, work=work)) for work in WORKS}


def _turn(worker: Worker, work: str) -> Answer:
    time.sleep(PAUSE)
    return worker.do(work)


def rate(answer: Answer) -> float:
    """Return the sessions per second."""
    return answer.sessions / answer.seconds


def speed_of(name: str, rounds: Sequence[Mapping[str, Answer]]) -> Figure:
    """Return a program's sessions per second."""
    rates = [rate(answers[name]) for answers in rounds]
    return Figure(statistics.median(rates), "sessions/s", min(rates), max(rates))


def ratio_of(name: str, other: str, rounds: Sequence[Mapping[str, Answer]]) -> Figure:
    """Return how many times as fast as another a program is."""
    ratios = [rate(answers[name]) / rate(answers[other]) for answers in rounds]
    return Figure(statistics.median(ratios), "x", min(ratios), max(ratios))


def table_of(
    model: str, answers: Mapping[str, list[dict[str, Answer]]]
) -> tuple[list[dict[str, str]], dict[str, Figure]]:
    """Return rows to print, and the figures for the history."""
    rows, figures = [], {}
    ours = [program.name for program in OURS]
    for work, rounds in answers.items():
        for name in rounds[0]:
            speed = figures[f"{model} {work}, {name}"] = speed_of(name, rounds)
            row = {"model": model, "": work, "program": name, "sessions/s": f"{speed.value:,.0f}"}
            for side in ours if name not in ours else []:
                ratio = figures[f"{model} {work}, {side} / {name}"] = ratio_of(side, name, rounds)
                row[f"{side} is"] = f"{ratio.value:.2f} x ({ratio.least:.2f}-{ratio.most:.2f})"
            rows.append({**row, "loss, recall@20": f"{rounds[-1][name].result:.3f}"})
    return rows, figures


def main(words: Sequence[str] | None = None, history: Path = HISTORY) -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description="Compare with Transformers4Rec and RecTools.")
    parser.add_argument("--sessions", type=int, default=8_192)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=n_cores())
    chosen = parser.parse_args(words)
    print_header()
    rows, figures = [], {}
    with TemporaryDirectory() as folder:
        given = shared_settings(Path(folder) / "sessions.npz", chosen.sessions, chosen.threads)
        for (architecture, task), programs in STUDIES.items():
            settings = {**given, "architecture": architecture, "task": task}
            answers = compare(programs, settings, chosen.rounds, ENVIRONMENTS)
            of_model = table_of(f"{architecture}/{task}", answers)
            rows += of_model[0]
            figures |= of_model[1]
    print(tabulate(rows, headers="keys", disable_numparse=True))
    print(
        f"Medians of {chosen.rounds} turns, {chosen.threads} threads; least and most in brackets."
    )
    record("peers", vars(chosen), figures, history)


if __name__ == "__main__":
    main()
