"""NDCG@20 and recall@20 of Dayahead and its peers under the protocol, and their CPU time.

Each program trains on the train sessions of a window and scores what follows the test sessions of
the next one; all scores are ranked by our code, among the items of the train sessions so far
(docs/protocol.md). Peers go on training from window to window, as our networks do, with a table of
all items of the log from the start, as none of them can add items. All networks have the sizes,
batches and learning rate of params.yaml, ours its epochs too; PEERS has what else the libraries
document. Their own rates, .001 and .0005, are for more steps than a window has.

Seconds are user time of one thread, of all fits and evaluations; of a peer without the ranking.
Windows, settings and cells (cells.jsonl) are kept in build/accuracy, and what is there is not made
again: remove the folder to begin with other settings or code.

Command: python benchmarks/peer_accuracy.py
"""

import argparse
import json
import shutil
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise, product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from tabulate import tabulate

from dayahead.config.params import Params, load_params
from dayahead.core.columns import ITEM_ID, SESSION_ID
from dayahead.metrics.metrics import mean, window_metrics
from dayahead.windows.folder import WindowFolder
from measurement import print_header
from peer_windows import Ours, Peer, Side
from peers import ENVIRONMENTS, Program, peer
from scratch_project import ScratchProject
from shop_days import set_size
from worker import Worker

FOLDER = ENVIRONMENTS.parent / "accuracy"
G1_HOURS = datetime(2017, 10, 2, 0, tzinfo=UTC), datetime(2017, 10, 2, 13, tzinfo=UTC)
DATASETS: Mapping[str, Mapping[str, Any]] = {
    "synthetic": {},
    "rees46_head": {"unit": "minute", "length": 4},
    "diginetica": {"min_sessions": 10},
    "g1": {"unit": "hour"},
    "shop": {},
}
"""Settings of the windows by data set; of G1 the 13 hours of G1_HOURS, of the shop the days of
shop_days.py."""
SHOP_DAYS = 3
OURS = ("memory", "gpt2", "transitions", "popularity")
PEERS: Mapping[str, Program] = {
    "RecTools SASRec": peer("rectools", architecture="sasrec", dropout=0.2),
    "RecTools BERT4Rec": peer("rectools", architecture="bert4rec", dropout=0.2),
    "RecBole GRU4Rec": peer("recbole", n_layer=1, dropout=0.3),
    "Transformers4Rec XLNet": peer(
        "transformers4rec",
        **{"architecture": "xlnet", "task": "mlm", "mlm_probability": 0.15, "dropout": 0.3},
        **{"schedule": "linear", "max_grad_norm": 1.0},
    ),
}
"""Settings of their own: the defaults of RecTools' models, of RecBole's GRU4Rec.yaml and of
Transformers4Rec, whose learning rate falls to 0 over each fit, as its Trainer's does."""
OF_DATASET: Mapping[tuple[str, str], Mapping[str, Any]] = {
    ("shop", "RecTools SASRec"): {"loss": "sampled_softmax", "n_negatives": 256},
}
"""Further settings of a peer on a data set. In a shop the softmax over all items at all positions
of a day takes more than an hour, so RecTools' sampled one is taken."""
OF_ALL = {
    "threads": 1,
    "weight_decay": 0.0,
    "schedule": "constant",
    "max_grad_norm": None,
}
Cell = dict[str, Any]
"""Figures of a model on a data set, and the settings that they hold for."""


def windows_of(dataset: str) -> tuple[Params, WindowFolder]:
    """Return the settings and the windows of a data set, which are made where they are missing."""
    folder = FOLDER / dataset
    windows = folder / "data" / "windows"
    if not (windows / "windows.json").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        source = "synthetic" if dataset == "shop" else dataset
        settings = {"dataset": source, "window": DATASETS[dataset]}
        project = ScratchProject.create(folder, settings)
        if dataset == "g1":
            project.add_clicks(*G1_HOURS)
        if dataset == "shop":
            set_size(project, days=SHOP_DAYS)
        project.prepare()
    params = load_params(folder / "params.yaml")
    evaluation = replace(params.evaluation, lists=0)
    compute = replace(params.compute, processes=1, threads=1, device="cpu")
    return replace(params, evaluation=evaluation, compute=compute), WindowFolder(windows)


def measured(side: Side, folder: WindowFolder, key: Cell) -> Cell:
    """Fit and evaluate a side window by window; return its figures."""
    n_windows, seen = key["windows"], np.zeros(0, np.int32)
    ranks = []
    for window, after in pairwise(folder.windows[: n_windows and n_windows + 1]):
        side.fit(window)
        seen = np.union1d(seen, folder.items_in(window, "train"))
        if folder.read(after, key["split"], [SESSION_ID]).num_rows:
            ranks.append(side.ranks(after, seen))
    of_windows = [window_metrics(each, [20]) for each in ranks]
    names = ("ndcg_at_20", "recall_at_20")
    metrics = {name: mean([each[name] for each in of_windows]) for name in names}
    sessions = sum(len(each) for each in ranks)
    return {**metrics, "seconds": side.seconds, "windows": len(ranks), "sessions": sessions}


def cell_of(key: Cell, params: Params, folder: WindowFolder) -> Cell:
    """Measure a model on a data set."""
    model = key["model"]
    evaluation = replace(params.evaluation, split=key["split"])
    # A peer's program is given what popularity reads: items alone.
    architecture = model if model in OURS else "popularity"
    of_model = replace(params.model, architecture=architecture)
    params = replace(params, evaluation=evaluation, model=of_model)
    if model in OURS:
        figures = measured(Ours(params, folder), folder, key)
    else:
        program, log = PEERS[model], FOLDER / f"{model.replace(' ', '-').lower()}.log"
        given = settings_of(key, params, folder)
        start = partial(Worker, [program.python], program.file, given, log)
        with TemporaryDirectory() as exchange:
            side = Peer(start, folder, params, key["epochs"], Path(exchange), key["from_scratch"])
            with closing(side):
                figures = measured(side, folder, key)
    return {"key": key, **figures}


def settings_of(key: Cell, params: Params, folder: WindowFolder) -> dict[str, Any]:
    """Return the settings of a peer's program."""
    sizes = {name: getattr(params.model, name) for name in ("d_model", "n_layer", "n_head")}
    return {
        **OF_ALL,
        **sizes,
        "longest": folder.statistics.sessions.max_length,
        "batch_size": params.training.batch_size,
        "evaluation_batch_size": params.evaluation.batch_size,
        "learning_rate": key["learning_rate"] or params.training.learning_rate,
        "n_items": len(folder.vocabulary(ITEM_ID)),
        "seed": key["seed"],
        **PEERS[key["model"]].settings,
        **OF_DATASET.get((key["dataset"], key["model"]), {}),
    }


def keys_of(chosen: argparse.Namespace) -> list[Cell]:
    """Return which cells are wanted: all that their figures hold for."""
    keys = []
    for dataset, model in product(chosen.datasets, chosen.models):
        key = {"dataset": dataset, "model": model}
        key |= {name: getattr(chosen, name) for name in ("split", "windows")}
        if model in OURS:
            keys.append(key)
            continue
        key |= {name: getattr(chosen, name) for name in ("learning_rate", "from_scratch", "seed")}
        keys += [{**key, "epochs": epochs} for epochs in chosen.epochs]
    return keys


def table_of(cells: Sequence[Cell]) -> str:
    """Return a table: a row for each model, NDCG@20 / recall@20 and seconds by data set."""
    rows: dict[str, dict[str, str]] = {}
    for cell in cells:
        key = cell["key"]
        name = key["model"] + (f", {key['epochs']} epochs" if "epochs" in key else "")
        both = f"{cell['ndcg_at_20']:.4f} / {cell['recall_at_20']:.4f}"
        row = rows.setdefault(name, {"model": name})
        row[key["dataset"]] = f"{both}, {cell['seconds']:.0f} s"
    return tabulate(list(rows.values()), headers="keys", tablefmt="github")


def options(words: Sequence[str] | None) -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(description="Compare accuracy with peers under the protocol.")
    models = [*OURS, *PEERS]
    small = [name for name in DATASETS if name != "shop"]
    parser.add_argument("--datasets", nargs="+", choices=DATASETS, default=small)
    parser.add_argument("--models", nargs="+", choices=models, default=models)
    parser.add_argument("--windows", type=int, help="evaluate only so many of a data set")
    parser.add_argument("--split", choices=("test", "valid"), default="test")
    parser.add_argument("--epochs", type=int, nargs="+", default=[3, 10], help="of a peer's fits")
    parser.add_argument("--learning-rate", type=float, help="of peers, else that of params.yaml")
    parser.add_argument("--from-scratch", action="store_true", help="fit peers on all windows")
    parser.add_argument("--seed", type=int, default=1, help="of peers")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> None:
    """Measure, keep and print."""
    chosen = options(words)
    print_header()
    torch.set_num_threads(1)
    FOLDER.mkdir(parents=True, exist_ok=True)
    kept = FOLDER / "cells.jsonl"
    found = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
    cells = []
    for key in keys_of(chosen):
        cell = next((each for each in found if each["key"] == key), None)
        if cell is None:
            cell = cell_of(key, *windows_of(key["dataset"]))
            with kept.open("a", encoding="utf-8") as file:
                file.write(json.dumps(cell) + "\n")
            print(cell, flush=True)
        cells.append(cell)
    print(table_of(cells))


if __name__ == "__main__":
    main()
