"""Problems for the full softmax, torch's dense loss, and ours over two shards."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import torch
from torch.nn.functional import cross_entropy

from dayahead.distributed.sharding import Shard
from dayahead.model.output_layer import CACHE_MIB, OutputLayer, softmax_loss


def rows_of(n_rows):
    """In place of `rows_per_chunk`: rows per chunk, or one per thread for what stays in the cache.

    Budgets of chunks must differ from the cache's.
    """
    return lambda _, mib, __=1: 1 if mib == CACHE_MIB else n_rows


def problem(n_targets, n_items, dim=8, seed=0, scale=1.0):
    """States, table, bias (all requiring gradients) and targets."""
    generator = torch.Generator().manual_seed(seed)
    shapes = (n_targets, dim), (n_items, dim), (n_items,)
    parts = [(scale * torch.randn(shape, generator=generator)).requires_grad_() for shape in shapes]
    return *parts, torch.randint(0, n_items, (n_targets,), generator=generator)


def with_gradients(loss, *parts):
    return [loss.detach(), *torch.autograd.grad(3 * loss, parts)]


def dense(states, table, bias, targets, smoothing=0.0):
    logits = states @ table.T + bias
    return cross_entropy(logits, targets, label_smoothing=smoothing, reduction="sum")


def relative_errors(loss, parts, targets):
    """Of a loss and its gradients, against the dense ones in float64."""
    exact = [part.detach().double().requires_grad_() for part in parts]
    wanted = with_gradients(dense(*exact, targets), *exact)
    pairs = zip(with_gradients(loss, *parts), wanted, strict=True)
    return [float((one - other).norm() / other.norm().clamp(min=1)) for one, other in pairs]


class Halves:
    """Two shards in two threads; every one has all states."""

    def __init__(self):
        self.barrier = Barrier(2, timeout=30)
        self.values = [None, None]

    def shard(self, rank):
        halves = self

        class Half(Shard):
            def stack(self, values):
                halves.values[rank] = values
                halves.barrier.wait()
                stacked = torch.stack(halves.values)
                halves.barrier.wait()
                return stacked

            def all_gather(self, *values, dtype):
                return [values[0].to(dtype), *values[1:]], [len(values[0])]

        return Half(rank, 2)

    def loss(self, states, table, bias, targets, config):
        def of_rank(rank):
            rows, biases = table[rank::2], bias[rank::2]
            layer = OutputLayer(rows, biases, len(table), self.shard(rank))
            with torch.autocast("cpu", torch.bfloat16, enabled=is_enabled):
                return softmax_loss(states, layer, targets, config)

        is_enabled = torch.is_autocast_enabled("cpu")  # of this thread
        with ThreadPoolExecutor(2) as pool:
            return sum(pool.map(of_rank, range(2)))
