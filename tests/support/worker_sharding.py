"""What the processes of a test do that share an item table out."""

from pathlib import Path

import torch
from torch import Tensor

from dayahead.core.columns import ITEM_ID
from dayahead.core.files import write_json
from dayahead.distributed.process import Process, Rank
from dayahead.distributed.sharding import WHOLE, Shard
from dayahead.model.next_item import NextItemModel
from dayahead.model.rng import StepRandom
from dayahead.train.batches import Batch, Sessions
from dayahead.train.sharded_ranking import ShardedRanking
from dayahead.train.trainers import _draws
from support.tiny_settings import loss_config, model_config, task_config

N_ITEMS = 31
CASES = {
    "softmax": ({}, {}, {}),
    "chunks": ({}, {}, {"logits_budget_mib": 1}),
    "smoothing": ({}, {}, {"label_smoothing": 0.2, "temperature": 0.5}),
    "untied": ({"tie_weights": False, "item_embedding_dim": 8}, {}, {}),
    "frozen": ({"freeze_items": True}, {}, {}),
    **{
        name: ({}, {}, {"name": name, "label_smoothing": 0.1 * (name == "sampled_softmax")})
        for name in ("sampled_softmax", "gbce", "bpr", "bpr_max", "top1_max")
    },
    "mlm": ({"architecture": "bert"}, {"name": "mlm"}, {}),
    "plm": ({"architecture": "xlnet"}, {"name": "plm"}, {}),
    "rtd": ({"architecture": "electra"}, {"name": "rtd", "rtd_replacements": "catalogue"}, {}),
}
"""Settings of the model, its task and its loss."""
CANDIDATES = {
    "all": torch.arange(2, N_ITEMS + 2),
    "some": torch.tensor([3, 4, 8, 20]),
    "held by one": torch.tensor([2, 6, 14]),
    "none": torch.tensor([], dtype=torch.int64),
}


def compare_with_whole(process: Process, folder: Path) -> None:
    """Write how far each case's loss and gradients are from those of one process, relatively."""
    shard = Shard.create(process.rank)
    found = {name: _departures(process, shard, *case) for name, case in CASES.items()}
    write_json(folder / f"{process.rank.index}.json", found)


def rank_together(process: Process, folder: Path) -> None:
    """Write whether shared ranks and best items are those of all scores in one place."""
    shard = Shard.create(process.rank)
    draw = torch.Generator().manual_seed(2)
    scores = torch.randint(6, (23, N_ITEMS), generator=draw).float()  # many ties
    targets = torch.randint(2, N_ITEMS + 2, (23,), generator=draw)
    own = slice(shard.rank, None, shard.world_size)  # not as many for all
    same = {}
    for name, candidates in CANDIDATES.items():
        answers = [
            ShardedRanking(each, candidates, n_best=5)(found, asked)
            for each, found, asked in (
                (WHOLE, scores[:, candidates - 2], targets),
                (shard, _in_order(scores, shard, candidates), targets[own]),
            )
        ]
        same[name] = [bool(one[own].equal(other)) for one, other in zip(*answers, strict=True)]
    write_json(folder / f"{process.rank.index}.json", same)


def _in_order(scores: Tensor, shard: Shard, candidates: Tensor) -> Tensor:
    """Scores of candidates held here for the questions of all, one process after the other."""
    every = torch.cat([scores[rank :: shard.world_size] for rank in range(shard.world_size)])
    return every[:, candidates[(candidates - 2) % shard.world_size == shard.rank] - 2]


def _departures(
    process: Process, shard: Shard, model: dict, task: dict, loss: dict
) -> dict[str, float]:
    """By parameter; the loss is named `loss`."""
    built = [
        NextItemModel(
            model_config(**model),
            task_config(**task),
            loss_config(**loss),
            categoricals={},
            numbers={},
            max_length=9,
            seed=1,
            shard=each,
        )
        for each in (WHOLE, shard)
    ]
    whole, own = (
        _with_gradients(each, _batch(share))
        for each, share in zip(built, (Rank(0, 1), process.rank), strict=True)
    )
    for name, gradient in own.items():
        if name in built[1].sharded:
            whole[name] = whole[name][shard.rank :: shard.world_size]
        else:
            process.all_reduce(gradient)
    # A bias of attention's keys has no gradient but for rounding.
    least = 0.01 * torch.stack([wanted.norm() for wanted in whole.values()]).norm()
    return {
        name: float((own[name] - wanted).norm() / wanted.norm().clamp(min=least))
        for name, wanted in whole.items()
    }


def _batch(rank: Rank) -> Batch:
    """Ten sessions of 2 to 8 events; of four processes, two have an empty row."""
    draw = torch.Generator().manual_seed(3)
    lengths = torch.randint(2, 9, (10,), generator=draw)
    items = torch.randint(2, N_ITEMS + 2, (int(lengths.sum()),), generator=draw)
    offsets = torch.nn.functional.pad(lengths.cumsum(0), (1, 0))
    return Sessions({ITEM_ID: items}, offsets).gather(torch.arange(10), rank)


def _with_gradients(model: NextItemModel, batch: Batch) -> dict[str, Tensor]:
    model.grow({ITEM_ID: N_ITEMS})
    model.train()
    draws: StepRandom = _draws(batch, seed=5)
    loss, _ = model(batch.columns, batch.lengths, draws, 2)
    loss.backward()
    gradients = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    return {"loss": loss.detach()} | gradients
