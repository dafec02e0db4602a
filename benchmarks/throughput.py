"""Sessions per second in training and evaluation, against a plain loop over the same backbone.

Both make GPT-2/clm steps at d 128, 2 layers, 4 heads, batch 256, over 20,000 items and sessions of
2 to 20 events (mean about 5). The plain loop does what Transformers4Rec does: batches drawn without
regard to length and padded to 20, all logits in memory, no mask, ranks by top-k. Figures are
medians of rounds in which the two take turns; benchmarks/history.jsonl keeps them.

Command: python benchmarks/throughput.py
"""

import statistics
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from dayahead.config.params import Params
from dayahead.core.columns import ITEM_ID, N_RESERVED
from dayahead.distributed.launch import run_processes
from dayahead.distributed.process import Process
from dayahead.distributed.sharding import WHOLE, Shard
from dayahead.model.next_item import NextItemModel
from dayahead.train.batches import Sessions
from history import Figure, record
from measurement import Work, print_header, seconds, time_in_turns
from workload import (
    LONGEST,
    SINGLE,
    Pass,
    build_model,
    default_params,
    gpt2_params,
    zipf_sessions,
)

N_ITEMS = 20_000
N_SESSIONS = 4_096
BATCH = 256
EVALUATION_BATCH = 512
ROUNDS = 5


@dataclass(frozen=True)
class Size:
    """Of the work."""

    batch: int = BATCH
    n_items: int = N_ITEMS
    n_sessions: int = N_SESSIONS


def build_work(
    process: Process, params: Params, size: Size = Size(), shard: Shard = WHOLE
) -> dict[str, Work]:
    """Return one epoch of training and one pass of evaluation, this process's share of them."""
    sessions = zipf_sessions(size.n_sessions, LONGEST, size.n_items)
    gpt2 = replace(
        gpt2_params(params),
        training=replace(params.training, batch_size=size.batch),
        evaluation=replace(params.evaluation, batch_size=EVALUATION_BATCH),
    )
    ours = Pass(process, gpt2, sessions, size.n_items, shard)
    return {"training": ours.fit, "evaluation": ours.evaluate}


class PlainLoop:
    """Training and evaluation of the same model in the plain way."""

    def __init__(self, model: NextItemModel, sessions: Sessions) -> None:
        self.model = model
        self.sessions = sessions
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def fit(self) -> None:
        """Train for one epoch."""
        self.model.train()
        for rows in torch.randperm(N_SESSIONS).split(BATCH):
            items, _ = self._padded(rows)
            targets = items.roll(-1, 1)
            targets[:, -1] = 0
            is_target = targets > 0
            logits = self._logits(self._hidden(items)[is_target])
            loss = cross_entropy(logits, targets[is_target] - N_RESERVED)
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()

    @torch.no_grad()
    def evaluate(self) -> None:
        """Look for each target among the best 20 of all items."""
        self.model.eval()
        for rows in torch.arange(N_SESSIONS).split(EVALUATION_BATCH):
            items, lengths = self._padded(rows)
            hidden = self._hidden(items)[torch.arange(len(rows)), lengths - 2]
            best = self._logits(hidden).topk(20).indices
            (best == (items[torch.arange(len(rows)), lengths - 1] - N_RESERVED)[:, None]).any(1)

    def _padded(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return items padded to 20, and lengths."""
        batch = self.sessions.gather(rows, SINGLE)
        items = batch.columns[ITEM_ID]
        return nn.functional.pad(items, (0, LONGEST - items.shape[1])), batch.lengths

    def _hidden(self, items: Tensor) -> Tensor:
        """Run every position through the backbone, without a padding mask."""
        inputs = self.model.inputs.dropout(self.model.inputs.items(items))
        hidden: Tensor = self.model.body.network.transformer(inputs_embeds=inputs).last_hidden_state
        return hidden

    def _logits(self, hidden: Tensor) -> Tensor:
        return hidden @ self.model.output_layer.table.T + self.model.bias


def run(process: Process, params: Params) -> None:
    """Time both in turns; print the medians and their change."""
    model = build_model(gpt2_params(params), LONGEST)
    model.grow({ITEM_ID: N_ITEMS})
    plain = PlainLoop(model, zipf_sessions(N_SESSIONS, LONGEST, N_ITEMS))
    plain_work = {"training": plain.fit, "evaluation": plain.evaluate}
    figures = {}
    for name, work in build_work(process, params).items():
        rounds = time_in_turns({"ours": work, "plain": plain_work[name]}, ROUNDS, seconds)
        ours, theirs = (
            N_SESSIONS / statistics.median(times[side] for times in rounds)
            for side in ("ours", "plain")
        )
        ratio = statistics.median(times["plain"] / times["ours"] for times in rounds)
        print(
            f"{name:10s} {ours:8,.0f} sessions/s, plain loop {theirs:8,.0f}, ratio {ratio:.2f} "
            f"(medians of {ROUNDS} rounds, {torch.get_num_threads()} threads)"
        )
        figures[name] = Figure(ours, "sessions/s")
        figures[f"{name} / plain loop"] = Figure(ratio, "x")
    record("throughput", {"threads": torch.get_num_threads()}, figures)


if __name__ == "__main__":
    print_header()
    settings = default_params()
    run_processes(run, settings.compute, settings)
