"""A softmax's passes over a chunk of logits on a GPU, as two Triton kernels.

For each bfloat16 logit, torch's passes move about 48 bytes (a float32 copy, bias, maximum, softmax,
maximum, sum, the copy back); these move 6: one kernel reads the logits, the other reads and
replaces them. Everything is computed in float32.

Triton comes with torch's CUDA wheel. `TRITON_INTERPRET=1` runs the kernels on CPU tensors.
"""

import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

SUM_STATES, SUM_ITEMS = 4, 1024
"""States per program of `_log_sums_and_scores`, and items that it reads at once."""
TILE_STATES, TILE_ITEMS = 32, 128
"""States and items that a program of `_to_gradients` reads at once."""
TILES = 8
"""Tiles of states that a program of `_to_gradients` processes one after the other."""
WARPS = 8
LEAST = tl.constexpr(-3.4e38)
"""Below every finite score; -inf minus itself is NaN."""

Products = Float[Tensor, "t m"]
"""Products of states and rows of items: scores without biases. Its rows are contiguous, as are all
other arguments."""
OwnTargets = Int[Tensor, " t"]
"""Column of each state's target, or -1 if another process holds that item."""


def log_sums_and_scores(
    products: Products,
    target_bias: Float[Tensor, " m"],
    bias: Float[Tensor, " m"],
    own: OwnTargets,
) -> tuple[Float[Tensor, " t"], Float[Tensor, " t"]]:
    """Return the logs of the softmax's sums over these items, and the targets' scores; float32.

    Args:
        products: not changed.
        target_bias: float32 bias of an item where it is the state's target.
        bias: float32 bias of an item where it is not.
        own: the targets. The score of one that another process holds is 0.
    """
    n_states, n_items = products.shape
    log_sums, scores = (bias.new_empty(n_states) for _ in range(2))
    _log_sums_and_scores[(triton.cdiv(n_states, SUM_STATES),)](
        *(products, target_bias, bias, own, log_sums, scores),
        *(n_states, n_items, products.stride(0)),
        sum_states=SUM_STATES,
        sum_items=SUM_ITEMS,
        num_warps=WARPS,
    )
    return log_sums, scores


def to_gradients(
    products: Products,
    bias: Float[Tensor, " m"],
    own: OwnTargets,
    log_sums: Float[Tensor, " t"],
    target_gradients: Float[Tensor, " t"],
) -> Float[Tensor, " m"]:
    """Replace products by the gradients of the logits; return their sums over states, float32.

    Args:
        products: replaced.
        bias: float32 bias of all items but a state's own target.
        own: the targets.
        log_sums: logs of the softmax's sums over the items of all processes.
        target_gradients: gradients of the targets' logits.
    """
    n_states, n_items = products.shape
    n_programs = triton.cdiv(n_states, TILES * TILE_STATES)
    sums = bias.new_empty(n_programs, n_items)
    _to_gradients[triton.cdiv(n_items, TILE_ITEMS), n_programs](
        *(products, bias, own, log_sums, target_gradients, sums),
        *(n_states, n_items, products.stride(0)),
        tile_states=TILE_STATES,
        tile_items=TILE_ITEMS,
        tiles=TILES,
        num_warps=WARPS,
    )
    return sums.sum(0)


@triton.jit(do_not_specialize=["n_states"])
def _log_sums_and_scores(
    products, target_bias, bias, own, log_sums, scores, n_states, n_items, row_stride,
    sum_states: tl.constexpr, sum_items: tl.constexpr,
):  # fmt: skip
    states = tl.program_id(0) * sum_states + tl.arange(0, sum_states)
    states = tl.minimum(states, n_states - 1)  # programs past the end repeat the last state
    # int64: a chunk may have more than 2^31 logits.
    rows = products + states.to(tl.int64) * row_stride
    target = tl.load(own + states).to(tl.int32)
    is_own = target >= 0
    of_target = tl.load(target_bias + target, mask=is_own, other=0.0)
    # Online softmax: each lane's highest score so far, and its sum of exp(score - highest).
    highest = tl.full([sum_states, sum_items], LEAST, tl.float32)
    total = tl.zeros([sum_states, sum_items], tl.float32)
    for start in range(0, n_items, sum_items):
        items = start + tl.arange(0, sum_items)
        is_item = items < n_items
        at = rows[:, None] + items[None, :]
        logits = tl.load(at, mask=is_item[None, :], other=float("-inf")).to(tl.float32)
        biases = tl.load(bias + items, mask=is_item, other=0.0)
        is_target = items[None, :] == target[:, None]
        logits += tl.where(is_target, of_target[:, None], biases[None, :])
        lower = tl.exp(-tl.abs(logits - highest))  # the lower of the two, relative to the higher
        total = tl.where(logits > highest, total * lower + 1, total + lower)
        highest = tl.maximum(highest, logits)
    of_all = tl.max(highest, 1)
    log_sum = of_all + tl.log(tl.sum(total * tl.exp(highest - of_all[:, None]), 1))
    tl.store(log_sums + states, log_sum)
    score = tl.load(rows + target, mask=is_own, other=0.0).to(tl.float32) + of_target
    tl.store(scores + states, score)


@triton.jit(do_not_specialize=["n_states"])
def _to_gradients(
    products, bias, own, log_sums, target_gradients, sums, n_states, n_items, row_stride,
    tile_states: tl.constexpr, tile_items: tl.constexpr, tiles: tl.constexpr,
):  # fmt: skip
    items = tl.program_id(0) * tile_items + tl.arange(0, tile_items)
    is_item = items < n_items
    biases = tl.load(bias + items, mask=is_item, other=0.0)
    total = tl.zeros([tile_states, tile_items], tl.float32)
    for tile in range(tiles):
        states = (tl.program_id(1) * tiles + tile) * tile_states + tl.arange(0, tile_states)
        is_state = states < n_states
        is_inside = is_state[:, None] & is_item[None, :]
        target = tl.load(own + states, mask=is_state, other=-1).to(tl.int32)
        log_sum = tl.load(log_sums + states, mask=is_state, other=0.0)
        of_target = tl.load(target_gradients + states, mask=is_state, other=0.0)
        at = products + states.to(tl.int64)[:, None] * row_stride + items[None, :]
        logits = tl.load(at, mask=is_inside, other=float("-inf")).to(tl.float32) + biases[None, :]
        gradients = tl.exp(logits - log_sum[:, None])  # 0 outside
        is_target = items[None, :] == target[:, None]
        gradients = tl.where(is_target, of_target[:, None], gradients)
        total += gradients
        tl.store(at, gradients.to(products.dtype.element_ty), mask=is_inside)
    at = sums + tl.program_id(1).to(tl.int64) * n_items + items
    tl.store(at, tl.sum(total, 0), mask=is_item)
