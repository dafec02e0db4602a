"""Our side of `peers.py`."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from dayahead.config.params import Params
from dayahead.core.columns import ITEM_ID, N_RESERVED
from dayahead.distributed.launch import run_processes
from dayahead.distributed.process import Process
from dayahead.train.batches import Sessions
from worker import Work, answer_requests, settings
from workload import Pass, default_params


def params_of(given: dict[str, Any]) -> Params:
    """Return the settings of params.yaml with those that both sides share."""
    params = default_params()
    shared = ("architecture", "d_model", "n_layer", "n_head", "dropout")
    task = replace(params.task, name=given["task"], mlm_probability=given["mlm_probability"])
    trained = ("batch_size", "learning_rate", "weight_decay", "max_grad_norm", "precision")
    return replace(
        params,
        model=replace(params.model, **{name: given[name] for name in shared}),
        task=task,
        training=replace(params.training, **{name: given[name] for name in trained}),
        evaluation=replace(params.evaluation, batch_size=given["evaluation_batch_size"]),
        compute=replace(params.compute, threads=given["threads"]),
    )


def works_of(process: Process, given: dict[str, Any], params: Params) -> dict[str, Work]:
    """Return an epoch of training and a pass of evaluation over the sessions."""
    stored = np.load(given["sessions"])
    items = torch.from_numpy(stored["items"]) + N_RESERVED
    sessions = Sessions({ITEM_ID: items}, torch.from_numpy(stored["offsets"]))
    ours = Pass(process, params, sessions, given["n_items"])

    def fit() -> tuple[int, float]:
        return len(sessions), ours.fit() or 0.0

    def recall() -> tuple[int, float]:
        return len(sessions), float((ours.evaluate().ranks <= 20).mean())

    return {"training": fit, "evaluation": recall}


def run(process: Process, given: dict[str, Any], params: Params) -> None:
    """Train and evaluate on request."""
    answer_requests(works_of(process, given, params))


if __name__ == "__main__":
    chosen = settings()
    wanted = params_of(chosen)
    run_processes(run, wanted.compute, chosen, wanted)
