"""A softmax's passes over a chunk of logits on a GPU, as two Triton kernels.

Of bfloat16 logits torch's passes move about 40 bytes each (a float32 copy, bias, maximum, softmax,
sum, the copy back); these move 6: one kernel reads them, the other reads and replaces them.
Everything is computed in float32.

Triton comes with torch's CUDA wheel. `TRITON_INTERPRET=1` runs the kernels on CPU tensors.
"""

import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

ROW_BLOCK = 4096
"""Items that a program of `_normalize`, which has one state, takes at once."""
TILE_STATES, TILE_ITEMS = 32, 128
"""States and items that a program of `_differentiate`, which has so many items, takes at once."""
WARPS = 8
LEAST = tl.constexpr(-3.4e38)
"""Below every finite score; -inf minus itself is NaN."""

Products = Float[Tensor, "t m"]
"""Of states and rows of items, contiguous: scores without biases."""
OwnTargets = Int[Tensor, " t"]
"""Of each state its target's column, or -1 if another process holds that item."""


def normalize(
    products: Products, bias: Float[Tensor, " m"], others: Float[Tensor, " m"], own: OwnTargets
) -> tuple[Float[Tensor, " t"], Float[Tensor, " t"]]:
    """Return the logs of the softmax's sums, and the targets' scores; float32.

    Args:
        products: are left as they are.
        bias: float32, of a state's own target.
        others: float32, biases of all other items.
        own: the targets. Of those that another process holds the score is 0.
    """
    log_sums, scores = bias.new_empty(2, len(products))
    if len(products):
        _normalize[len(products),](
            *(products, bias, others, own, log_sums, scores, products.shape[1]),
            block=ROW_BLOCK,
            num_warps=WARPS,
        )
    return log_sums, scores


def differentiate(
    products: Products,
    others: Float[Tensor, " m"],
    own: OwnTargets,
    log_sums: Float[Tensor, " t"],
    of_targets: Float[Tensor, " t"],
    bias_grad: Float[Tensor, " m"],
) -> None:
    """Replace products by the gradients of the logits, and add these to the bias's gradient.

    Args:
        products: replaced.
        others: as for `normalize`.
        own: as for `normalize`.
        log_sums: of the softmax's sums, over all processes.
        of_targets: gradients of the targets' own logits.
        bias_grad: float32.
    """
    n_states, n_items = products.shape
    _differentiate[triton.cdiv(n_items, TILE_ITEMS),](
        *(products, others, own, log_sums, of_targets, bias_grad, n_states, n_items),
        tile_states=TILE_STATES,
        tile_items=TILE_ITEMS,
        num_warps=WARPS,
    )


@triton.jit
def _normalize(products, bias, others, own, log_sums, scores, n_items, block: tl.constexpr):
    state = tl.program_id(0)
    row = products + state.to(tl.int64) * n_items
    target = tl.load(own + state)
    is_own = target >= 0
    target_bias = tl.load(bias + target, mask=is_own, other=0.0)
    # Of each lane, the highest score so far and the sum of exp(score - highest).
    highest = tl.full([block], LEAST, tl.float32)
    total = tl.zeros([block], tl.float32)
    for start in range(0, n_items, block):
        items = start + tl.arange(0, block)
        is_item = items < n_items
        biases = tl.load(others + items, mask=is_item, other=0.0)
        biases = tl.where(items == target, target_bias, biases)
        logits = tl.load(row + items, mask=is_item, other=float("-inf")).to(tl.float32) + biases
        higher = tl.maximum(highest, logits)
        total = total * tl.exp(highest - higher) + tl.exp(logits - higher)
        highest = higher
    of_all = tl.max(highest, 0)
    log_sum = of_all + tl.log(tl.sum(total * tl.exp(highest - of_all), 0))
    tl.store(log_sums + state, log_sum)
    score = tl.load(row + target, mask=is_own, other=0.0).to(tl.float32) + target_bias
    tl.store(scores + state, score)


@triton.jit
def _differentiate(
    products, others, own, log_sums, of_targets, bias_grad, n_states, n_items,
    tile_states: tl.constexpr, tile_items: tl.constexpr,
):  # fmt: skip
    items = tl.program_id(0) * tile_items + tl.arange(0, tile_items)
    is_item = items < n_items
    biases = tl.load(others + items, mask=is_item, other=0.0)
    total = tl.zeros([tile_items], tl.float32)
    for start in range(0, n_states, tile_states):
        states = start + tl.arange(0, tile_states)
        is_state = states < n_states
        target = tl.load(own + states, mask=is_state, other=-1)
        log_sum = tl.load(log_sums + states, mask=is_state, other=0.0)
        of_target = tl.load(of_targets + states, mask=is_state, other=0.0)
        at = products + states.to(tl.int64)[:, None] * n_items + items[None, :]
        is_inside = is_state[:, None] & is_item[None, :]
        logits = tl.load(at, mask=is_inside, other=float("-inf")).to(tl.float32) + biases[None, :]
        gradients = tl.exp(logits - log_sum[:, None])  # 0 outside
        gradients = tl.where(items[None, :] == target[:, None], of_target[:, None], gradients)
        total += tl.sum(gradients, 0)
        tl.store(at, gradients.to(products.dtype.element_ty), mask=is_inside)
    before = tl.load(bias_grad + items, mask=is_item, other=0.0)
    tl.store(bias_grad + items, before + total, mask=is_item)
