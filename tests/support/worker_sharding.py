"""Functions that tests of sharded item tables run in worker processes."""

from pathlib import Path
from unittest.mock import patch

import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, distribute_tensor
from torch.distributed.tensor import Shard as ByBlocks
from torch.distributed.tensor.parallel import loss_parallel
from torch.nn.functional import cross_entropy

from dayahead.core.columns import ITEM_ID
from dayahead.core.files import write_json
from dayahead.distributed import sharding
from dayahead.distributed.process import Process, Rank
from dayahead.distributed.sharding import WHOLE, Shard
from dayahead.metrics.scores import DenseScores
from dayahead.model.next_item import NextItemModel
from dayahead.model.output_layer import OutputLayer, softmax_loss
from dayahead.model.own_items import Scored
from dayahead.model.rng import StepRandom
from dayahead.model.tensor_files import (
    ShardedTensor,
    send_rows,
    stored_tensors,
    write_tensors,
)
from dayahead.train.batches import Batch, Sessions
from dayahead.train.evaluate import ShardedRanking
from dayahead.train.trainers import _step_random
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


def compare_gradients(process: Process, folder: Path) -> None:
    """Write each case's relative differences of loss and gradients from those of one process."""
    shard = Shard.create(process.rank)
    found = {name: _differences(process, shard, *case) for name, case in CASES.items()}
    write_json(folder / f"{process.rank.index}.json", found)


def compare_ranks(process: Process, folder: Path) -> None:
    """Write whether ranks and top items of sharded scores are those of one process."""
    shard = Shard.create(process.rank)
    generator = torch.Generator().manual_seed(2)
    scores = torch.randint(6, (23, N_ITEMS), generator=generator).float()  # many ties
    targets = torch.randint(2, N_ITEMS + 2, (23,), generator=generator)
    own = slice(shard.rank, None, shard.world_size)  # more rows on some ranks than on others
    is_same = {}
    for name, candidates in CANDIDATES.items():
        every = _without_own(scores[:, candidates - 2], len(targets))
        whole = ShardedRanking(WHOLE, candidates, n_best=5)(every, targets)
        local = _local_scores(scores, shard, candidates)
        sharded = ShardedRanking(shard, candidates, n_best=5)(
            _without_own(local, len(targets[own])), targets[own]
        )
        is_same[name] = [
            bool(one[own].equal(part)) for one, part in zip(whole, sharded, strict=True)
        ]
    write_json(folder / f"{process.rank.index}.json", is_same)


def write_and_read_rows(process: Process, folder: Path) -> None:
    """Write whether a table, exchanged in several chunks, is stored whole and read by rows."""
    shard = Shard.create(process.rank)
    table = torch.arange(2 * N_ITEMS).view(N_ITEMS, 2)
    own = table[shard.rank :: shard.world_size]
    tensors = {"table": ShardedTensor(shard, own, N_ITEMS, process.device)}
    path = folder / "tensors"
    with patch.object(sharding, "CHUNK_BYTES", 4 * table[0].nbytes * shard.world_size):
        if process.is_main:
            write_tensors(path, tensors)
        else:
            send_rows(tensors)
        stored = stored_tensors(path)["table"] if process.is_main else None
        local = shard.scatter_rows(stored, table, N_ITEMS)
    is_same = [local.equal(own), load_file(path)["table"].equal(table)]
    write_json(folder / f"{process.rank.index}.json", is_same)


def exchange_in_bfloat16(process: Process, folder: Path) -> None:
    """Write whether values are gathered rounded, and rounded gradients summed in float32."""
    shard = Shard.create(process.rank)
    generator = torch.Generator().manual_seed(4)
    n_of = [3, 1, 0, 2][: shard.world_size]
    every = torch.randn(sum(n_of), 5, generator=generator)
    own = every.split(n_of)[shard.rank].clone().requires_grad_()
    numbers = torch.arange(n_of[shard.rank])
    [gathered, found], lengths = shard.all_gather(own, numbers, dtype=torch.bfloat16)
    weights = torch.randn(shard.world_size, sum(n_of), 5, generator=generator).bfloat16()
    (gathered * weights[shard.rank]).sum().backward()
    is_same = [
        lengths == n_of,
        gathered.dtype == torch.bfloat16 and gathered.equal(every.bfloat16()),
        found.equal(torch.cat([torch.arange(n) for n in n_of])),
        own.grad.equal(weights.float().sum(0).split(n_of)[shard.rank]),
    ]
    write_json(folder / f"{process.rank.index}.json", is_same)


def compare_with_dtensor(process: Process, folder: Path) -> None:
    """Write the relative differences of the sharded softmax from torch's over a DTensor.

    There the table is sharded by blocks of rows, and `loss_parallel` gathers no logits either.
    """
    shard = Shard.create(process.rank)
    generator = torch.Generator().manual_seed(5)
    n_items, dim = 16 * shard.world_size, 8
    parts = [torch.randn(*size, generator=generator) for size in ((9, dim), (n_items, dim))]
    parts.append(torch.randn(n_items, generator=generator))
    targets = torch.randint(n_items, (9,), generator=generator)
    mesh = init_device_mesh("cpu", (shard.world_size,))
    placements = ([Replicate()], [ByBlocks(0)], [ByBlocks(0)])
    states, table, bias = (
        distribute_tensor(part, mesh, placement).requires_grad_()
        for part, placement in zip(parts, placements, strict=True)
    )
    with loss_parallel():
        labels = distribute_tensor(targets, mesh, [Replicate()])
        expected = cross_entropy(states @ table.T + bias, labels, reduction="sum")
        expected.backward()
    own = slice(shard.rank, None, shard.world_size)
    ours = [part[own].clone().requires_grad_() for part in parts]
    layer = OutputLayer(ours[1], ours[2], n_items, shard)
    loss = softmax_loss(ours[0], layer, targets[own], loss_config(logits_budget_mib=1))
    loss.backward()
    found = {"loss": _gap(process.all_reduce(loss.detach()), expected.full_tensor())}
    for name, mine, theirs in zip(
        ("states", "table", "bias"), ours, (states, table, bias), strict=True
    ):
        found[name] = _gap(mine.grad, theirs.grad.full_tensor()[own])
    write_json(folder / f"{process.rank.index}.json", found)


def _gap(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


def _local_scores(scores: Tensor, shard: Shard, candidates: Tensor) -> Tensor:
    """Scores of the candidates held here, for the targets of all ranks in order."""
    by_rank = torch.cat([scores[rank :: shard.world_size] for rank in range(shard.world_size)])
    return by_rank[:, candidates[(candidates - 2) % shard.world_size == shard.rank] - 2]


def _without_own(scores: Tensor, n_targets: int) -> Scored:
    """Scores of candidates for sessions without items of their own."""
    no_items = torch.zeros(n_targets, 1, dtype=torch.int64)
    return Scored(DenseScores(scores), no_items, torch.full((n_targets, 1), -torch.inf))


def _differences(
    process: Process, shard: Shard, model: dict, task: dict, loss: dict
) -> dict[str, float]:
    """By parameter, and `loss`."""
    models = [
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
        _gradients(each, _batch(rank))
        for each, rank in zip(models, (Rank(0, 1), process.rank), strict=True)
    )
    for name, gradient in own.items():
        if name in models[1].sharded:
            whole[name] = whole[name][shard.rank :: shard.world_size]
        else:
            process.all_reduce(gradient)
    # The bias of attention keys has no gradient but for rounding.
    least = 0.01 * torch.stack([expected.norm() for expected in whole.values()]).norm()
    return {
        name: float((own[name] - expected).norm() / expected.norm().clamp(min=least))
        for name, expected in whole.items()
    }


def _batch(rank: Rank) -> Batch:
    """Ten sessions of 2 to 8 events; of four processes, two have an empty row."""
    generator = torch.Generator().manual_seed(3)
    lengths = torch.randint(2, 9, (10,), generator=generator)
    items = torch.randint(2, N_ITEMS + 2, (int(lengths.sum()),), generator=generator)
    offsets = torch.nn.functional.pad(lengths.cumsum(0), (1, 0))
    return Sessions({ITEM_ID: items}, offsets).gather(torch.arange(10), rank)


def _gradients(model: NextItemModel, batch: Batch) -> dict[str, Tensor]:
    model.grow({ITEM_ID: N_ITEMS})
    if model.sampler is not None:
        model.sampler.set_counts(torch.arange(1, N_ITEMS + 1))
    model.train()
    random: StepRandom = _step_random(batch, seed=5)
    loss, _ = model(batch.columns, batch.lengths, random, 2)
    loss.backward()
    gradients = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    return {"loss": loss.detach()} | gradients
