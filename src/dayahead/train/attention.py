"""results/attention/: what chosen sessions' items take from each other where the next is scored."""

from pathlib import Path

import pyarrow as pa
import torch
from torch import Tensor

from dayahead.core.columns import IS_PAST, ITEM_ID, SESSION_ID
from dayahead.core.errors import ConfigError
from dayahead.core.files import write_parquet
from dayahead.distributed.process import Rank
from dayahead.model.baselines import CountingModel
from dayahead.model.next_item import NextItemModel
from dayahead.train.batches import Sessions

FOLDER = "attention"
ABOUT = (
    "<window>.parquet, for windows that hold a session of evaluation.attention_of: session_id, "
    "layer, head, query (position that attends), keys (positions attended to) and their weights, "
    "which sum to 1. Position 0 is the session's first item, those of its past are below 0, and "
    "the last target's own holds a mask where the task puts one there.\n"
)


def check_has_attention(model: NextItemModel | CountingModel) -> None:
    """Say before any training that there will be no weights to write.

    Raises:
        ConfigError: the architecture has none, or the task asks past them.
    """
    if isinstance(model, CountingModel):
        raise ConfigError(
            "params.yaml: evaluation.attention_of: an architecture that counts attends to nothing; "
            "empty the list, or set model.architecture to gpt2, xlnet or bert"
        )
    if model.task.attention == "permutation":
        raise ConfigError(
            "params.yaml: evaluation.attention_of: task.name: plm answers by XLNet's stream of "
            "queries, whose weights are not told; empty the list, or set task.name to mlm or clm"
        )
    device = model.bias.device
    inputs = torch.ones(1, 2, model.config.d_model, device=device)
    with torch.no_grad():
        model.body.attention_weights(inputs, torch.tensor([2], device=device))


def attention_table(
    model: NextItemModel, table: pa.Table, past_length: int, device: torch.device
) -> pa.Table:
    """Weights of the pass that scores each session's last item.

    Args:
        model: fitted on earlier windows only.
        table: window-file columns of some sessions, their ids among them.
        past_length: past events read before a session.
        device: where the model is.
    """
    sessions = Sessions.from_table(table, past_length)
    batch = sessions.gather(torch.arange(len(sessions)), Rank(0, 1)).to(device)
    layers, n_read = model.attention(batch.columns, batch.lengths - 1)
    is_past = batch.columns.get(IS_PAST, torch.zeros_like(batch.columns[ITEM_ID]))
    weights = torch.stack(layers, 1).float().cpu()  # [B, N, H, W, W]
    return _rows(weights, n_read.cpu(), is_past.sum(1).cpu(), table[SESSION_ID])


def _rows(weights: Tensor, n_read: Tensor, n_past: Tensor, ids: pa.ChunkedArray) -> pa.Table:
    """A row for each session, layer, head and position that attends, in this order."""
    steps = torch.arange(weights.shape[-1])
    is_read = (steps < n_read[:, None])[:, None, None].expand(weights.shape[:-1])
    of, layer, head, query = is_read.nonzero(as_tuple=True)
    is_key = steps < n_read[of][:, None]  # [R, W]
    ends = pa.array(torch.nn.functional.pad(n_read[of].cumsum(0), (1, 0)).int().numpy())
    keys = (steps - n_past[of][:, None])[is_key]
    taken = weights[of, layer, head, query][is_key]
    return pa.table(
        {
            SESSION_ID: ids.take(pa.array(of.numpy())),
            "layer": layer.int().numpy(),
            "head": head.int().numpy(),
            "query": (query - n_past[of]).int().numpy(),
            "keys": pa.ListArray.from_arrays(ends, pa.array(keys.int().numpy())),
            "weights": pa.ListArray.from_arrays(ends, pa.array(taken.numpy())),
        }
    )


def write_attention(results: Path, window: str, table: pa.Table) -> None:
    """Write one window's weights whole."""
    write_parquet(results / FOLDER / f"{window}.parquet", table)
