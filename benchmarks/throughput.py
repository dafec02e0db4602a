"""Sessions per second in training and measuring, against a plain loop over the same body.

Both make GPT-2/clm steps at d 128, 2 layers, 4 heads, batch 256, over 20,000 items and sessions of
2 to 20 events (mean about 5). The peer does what Transformers4Rec does: batches drawn without
regard to length and padded to 20, logits held whole, no mask, scores ranked by top-k. The two take
turns within one run, so that their ratio holds where the machine's speed drifts; medians are told.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from dayahead.config.params import Params, load_params
from dayahead.core.columns import ITEM_ID, N_RESERVED
from dayahead.distributed.launch import run_processes
from dayahead.distributed.process import Process, Rank
from dayahead.distributed.sharding import WHOLE, Shard
from dayahead.model.next_item import NextItemModel
from dayahead.train.batches import MemoryBatches, Sessions, shuffled_rows, sorted_rows
from dayahead.train.evaluate import Targets, evaluate
from dayahead.train.trainers import GradientTrainer

N_ITEMS = 20_000
N_SESSIONS = 4_096
BATCH = 256
LONGEST = 20
ROUNDS = 5
ALONE = Rank(index=0, world_size=1)


def generated_sessions(seed: int) -> Sessions:
    """Sessions of Zipf-popular items; lengths geometric, 2 to 20, mean about 5."""
    draw = np.random.default_rng(seed)
    lengths = np.clip(1 + draw.geometric(0.25, N_SESSIONS), 2, LONGEST)
    weights = 1 / np.arange(1, N_ITEMS + 1)
    items = draw.choice(N_ITEMS, lengths.sum(), p=weights / weights.sum()) + N_RESERVED
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return Sessions({ITEM_ID: torch.from_numpy(items)}, torch.from_numpy(offsets))


def built_model(params: Params, shard: Shard = WHOLE) -> NextItemModel:
    """GPT-2/clm at the benchmark's size."""
    config = replace(params.model, architecture="gpt2", d_model=128, n_layer=2, n_head=4)
    task = replace(params.task, name="clm")
    model = NextItemModel(
        config,
        task,
        params.loss,
        categoricals={},
        numbers={},
        max_length=LONGEST,
        seed=1,
        shard=shard,
    )
    model.grow({ITEM_ID: N_ITEMS})
    return model


class PlainLoop:
    """The peer: the same model's parts, stepped in the plain way."""

    def __init__(self, model: NextItemModel, sessions: Sessions) -> None:
        self.model = model
        self.sessions = sessions
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def padded(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Items padded to 20, and lengths."""
        batch = self.sessions.gather(rows, ALONE)
        items = batch.columns[ITEM_ID]
        return nn.functional.pad(items, (0, LONGEST - items.shape[1])), batch.lengths

    def hidden(self, items: Tensor) -> Tensor:
        """Every position through the body, padding not masked."""
        inputs = self.model.inputs.dropout(self.model.inputs.items(items))
        hidden: Tensor = self.model.body.network.transformer(inputs_embeds=inputs).last_hidden_state
        return hidden

    def fit(self) -> None:
        """One epoch."""
        self.model.train()
        for rows in torch.randperm(N_SESSIONS).split(BATCH):
            items, _ = self.padded(rows)
            targets = items.roll(-1, 1)
            targets[:, -1] = 0
            is_target = targets > 0
            logits = (
                self.hidden(items)[is_target] @ self.model.output_layer.table.T + self.model.bias
            )
            loss = cross_entropy(logits, targets[is_target] - N_RESERVED)
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()

    @torch.no_grad()
    def evaluate(self) -> None:
        """Find each target among the best 20 of all items."""
        self.model.eval()
        for rows in torch.arange(N_SESSIONS).split(512):
            items, lengths = self.padded(rows)
            hidden = self.hidden(items)[torch.arange(len(rows)), lengths - 2]
            best = (hidden @ self.model.output_layer.table.T + self.model.bias).topk(20).indices
            (best == (items[torch.arange(len(rows)), lengths - 1] - N_RESERVED)[:, None]).any(1)


def timed(work: Callable[[], object]) -> float:
    """Sessions per second of one pass."""
    start = time.perf_counter()
    work()
    return N_SESSIONS / (time.perf_counter() - start)


def run(process: Process, params: Params) -> None:
    """Take turns and print the medians."""
    sessions = generated_sessions(1)
    model = built_model(params)
    training = replace(params.training, batch_size=BATCH, epochs=1)
    learner = GradientTrainer(model, training, process)
    plan = shuffled_rows(sessions.lengths, BATCH, seed=1)
    epoch = [MemoryBatches(sessions, plan, ALONE)]
    shortest_first = MemoryBatches(sessions, sorted_rows(sessions.lengths, 512), ALONE)
    candidates = np.arange(N_RESERVED, N_RESERVED + N_ITEMS, dtype=np.int32)
    asked = Targets.last(N_SESSIONS)
    peer = PlainLoop(built_model(params), sessions)
    pairs = {
        "training": (lambda: learner.fit("benchmark", epoch, lambda _: None), peer.fit),
        "measuring": (
            lambda: evaluate(model, shortest_first, asked, candidates, process),
            peer.evaluate,
        ),
    }
    for name, (ours, plain) in pairs.items():
        timed(ours), timed(plain)  # warm
        rounds = [(timed(ours), timed(plain)) for _ in range(ROUNDS)]
        medians = [statistics.median(side) for side in zip(*rounds, strict=True)]
        ratio = statistics.median(a / b for a, b in rounds)
        print(
            f"{name:10s} {medians[0]:8,.0f} sessions/s, plain loop {medians[1]:8,.0f}, "
            f"ratio {ratio:.2f} (medians of {ROUNDS} rounds, {torch.get_num_threads()} threads)"
        )


if __name__ == "__main__":
    settings = load_params(Path(__file__).parents[1] / "params.yaml")
    run_processes(run, replace(settings.compute, processes=1, device="cpu"), settings)
