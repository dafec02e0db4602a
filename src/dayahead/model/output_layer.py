"""The output layer: item scores, and the full softmax loss without holding all its logits."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import Function, FunctionCtx, once_differentiable
from torch.nn.functional import pad

from dayahead.config.model import LossConfig
from dayahead.distributed.sharding import WHOLE, Shard

Columns = Mapping[str, Tensor]
"""Window-file columns [B, L] by name."""
Scorer = Callable[[Columns, Int[Tensor, " B"]], Float[Tensor, "B C"]]
"""From columns and the number of known events per session (at least 1) to float32 scores of
the candidates, higher is better. Events after the known ones are never read."""
States = Float[Tensor, "T d"]
Targets = Int[Tensor, " T"]
"""Items, numbered from 0."""
ROW_STEP = 32
"""States are padded to a multiple of this, so that steps share shapes: oneDNN takes 20 ms to
compile the bfloat16 products of a new shape."""
ALIGNED = 64
"""On a GPU, rows of logits are padded to a multiple of this many items."""
COPIED_ROWS = 4096
"""Rows of the table that are copied at once, so that no second copy of the table is held."""
LEAST_SCALE = 1e-30
"""Lower bound of the probability of the items held here, so that nothing is divided by zero."""
CACHE_MIB = 1
"""MiB of float32 logits per thread: they stay in its core's cache from one pass to the next."""


@dataclass(frozen=True)
class OutputLayer:
    """One weight row and one bias per item; a score is hidden state times row, plus bias.

    Items are numbered from 0. With a sharded table this process has the rows of its shard, and
    all processes must call the methods together.
    """

    table: Float[Tensor, "m d"]
    bias: Float[Tensor, " m"]
    n_items: int
    """Number of items over all processes."""
    shard: Shard = WHOLE
    has_sparse_gradient: bool = False
    """Whether the table's gradient has the rows alone that are looked up."""

    def at_temperature(self, temperature: float) -> "OutputLayer":
        """The layer for hidden states already divided by the temperature."""
        return replace(self, bias=self.bias / temperature)

    def rows(self, items: Int[Tensor, " k"]) -> tuple[Float[Tensor, "k d"], Float[Tensor, " k"]]:
        """Rows and biases of some items, fetched from the processes that hold them."""
        rows = self.shard.lookup(self.table, items, sparse=self.has_sparse_gradient)
        return rows, self.shard.lookup_scalars(self.bias, items)

    def own_columns(self, items: Int[Tensor, " k"]) -> Float[Tensor, "d+1 c"]:
        """Rows, each with its bias below, of those of some items that are on this process.

        The product of states, each with a 1 appended, and these columns are the scores. Adding the
        biases in a second pass would take as long again.
        """
        _, own = self.shard.local_indices(items)
        columns = self.table.new_empty(self.table.shape[1] + 1, len(own))
        parts = torch.split(columns, COPIED_ROWS, dim=1), torch.split(own, COPIED_ROWS)
        for part, rows in zip(*parts, strict=True):
            part[:-1] = self.table[rows].T
            part[-1] = self.bias[rows]
        return columns

    def own_scores(self, states: States) -> Float[Tensor, "T m"]:
        """Scores of the items whose rows are on this process."""
        return torch.addmm(self.bias, states, self.table.T)

    def scores_at(self, states: States, items: Int[Tensor, "T k"]) -> Float[Tensor, "T k"]:
        """Scores of k items per state; the table must be whole."""
        return torch.einsum("td,tkd->tk", states, self.table[items]) + self.bias[items]


def rows_per_chunk(n_scores: int, logits_budget_mib: int, minimum: int = 1) -> int:
    """Hidden states whose float32 scores, `n_scores` each, fit the budget."""
    return max(minimum, logits_budget_mib * 2**20 // (4 * max(1, n_scores)))


def softmax_loss(
    states: States,
    layer: OutputLayer,
    targets: Targets,
    config: LossConfig,
    corrections: Float[Tensor, " m"] | None = None,
) -> Float[Tensor, ""]:
    """Sum over targets of the cross entropy with a softmax over all items.

    float32, also of bfloat16 products, or float64. `corrections` are added to the
    scores of all items but a state's own target; the table must be whole then. `config` sets the
    chunk size. A chunk has at least as many states as they have
    dimensions: with fewer, the passes over the table and its gradient take longer than the products
    (four to eight times at a million items).

    With a sharded table (Shoeybi et al. 2019) this process's part of the loss belongs to the
    targets, of all processes, whose rows are here. The sum over processes is the loss of all
    targets; all must scale it by the same factor before `backward`.
    """
    shard = layer.shard
    dtype = _product_dtype(states)
    (states, targets), _ = shard.all_gather(states, targets, dtype=dtype)
    n_own = layer.n_items // shard.world_size  # or one more, but all processes need equal chunks
    budget_mib = config.softmax_mib(states.device.type, in_bfloat16=dtype == torch.bfloat16)
    n_rows = rows_per_chunk(n_own, budget_mib, states.shape[1])
    of_chunks = _ChunkLoss(layer.bias.detach(), corrections, shard)
    loss: Tensor = _SoftmaxLoss.apply(  # type: ignore[no-untyped-call]
        states, layer.table, layer.bias, targets, of_chunks, n_rows
    )
    return loss


def _product_dtype(tensor: Tensor) -> torch.dtype:
    """Dtype of a product with this tensor under the current autocast."""
    device = tensor.device.type
    is_enabled = torch.is_autocast_enabled(device)
    return torch.get_autocast_dtype(device) if is_enabled else tensor.dtype


def _aligned(like: Tensor, n_rows: int, width: int) -> Float[Tensor, "n_rows width"]:
    """Return an empty tensor; on a GPU its rows begin where products and kernels are fast."""
    excess = 0 if like.device.type == "cpu" else -width % ALIGNED
    return like.new_empty(n_rows, width + excess)[:, :width]


class _SoftmaxLoss(Function):
    """Computes each chunk's gradients along with its loss, so logits are computed once."""

    @staticmethod
    def forward(
        ctx: FunctionCtx,
        states: Tensor,
        table: Tensor,
        bias: Tensor,  # passed so that autograd asks for its gradient; its values are in `loss`
        targets: Tensor,
        loss: "_ChunkLoss",
        n_rows: int,
    ) -> Tensor:
        dtype = _product_dtype(states)
        n_states = len(states)
        step = min(ROW_STEP, n_rows)
        # Chunks of whole steps, so that all but the last one have the same shape.
        n_rows -= n_rows % step
        states = pad(states.to(dtype), (0, 0, 0, -n_states % step))
        table = table.to(dtype)
        states_grad = torch.empty_like(states)
        starts = range(0, len(states), n_rows)
        table_grad = None
        if ctx.needs_input_grad[1]:  # type: ignore[attr-defined]
            # Uninitialised: the first chunk overwrites it. Without a chunk the gradient is 0.
            new = torch.empty_like if starts else torch.zeros_like
            table_grad = new(table, dtype=loss.bias_grad.dtype)
        buffer = _aligned(states, min(n_rows, len(states)), len(table))
        for start in starts:
            chunk = states[start : start + n_rows]
            logits = torch.mm(chunk, table.T, out=buffer[: len(chunk)])
            scales = loss.differentiate(logits, targets[start : start + n_rows])
            chunk_grad = torch.mm(logits, table, out=states_grad[start : start + n_rows])
            if scales is not None:
                scales = pad(scales, (0, len(chunk) - len(scales)))[:, None]
                chunk_grad *= scales
                chunk = (chunk * scales).to(dtype)
            if table_grad is not None:
                _add_product(table_grad, logits.T, chunk, is_first=start == 0)
        gradients = states_grad[:n_states], table_grad, loss.bias_grad
        ctx.gradients = gradients  # type: ignore[attr-defined]
        return torch.cat(loss.losses).sum()

    @staticmethod
    @once_differentiable  # type: ignore[misc]
    def backward(ctx: FunctionCtx, gradient: Tensor) -> tuple[Tensor | None, ...]:
        gradients = ctx.gradients  # type: ignore[attr-defined]
        # Scaled in place, as they may be as large as the table; so they serve only once.
        del ctx.gradients  # type: ignore[attr-defined]
        scaled = (each if each is None else each.mul_(gradient) for each in gradients)
        return *scaled, None, None, None


def _add_product(sums: Tensor, left: Tensor, right: Tensor, *, is_first: bool) -> None:
    """Add a product to sums, which may be of a wider dtype; `is_first` if they hold nothing yet."""
    if left.dtype == sums.dtype:
        sums.addmm_(left, right, beta=not is_first)
    elif is_first:
        sums.copy_(left @ right)
    else:
        sums += left @ right


class _ChunkLoss:
    """Losses of the targets so far, and the gradient of the bias; float32 or float64."""

    def __init__(self, bias: Tensor, corrections: Tensor | None, shard: Shard) -> None:
        self.bias = bias.to(torch.promote_types(bias.dtype, torch.float32)).contiguous()
        self.is_corrected = corrections is not None
        self.corrected_bias = self.bias if corrections is None else self.bias + corrections
        self.shard = shard
        self.bias_grad = torch.zeros_like(self.bias)
        self.losses = [self.bias_grad[:0]]

    def differentiate(
        self, products: Float[Tensor, "t m"], targets: Targets
    ) -> Float[Tensor, " t"] | None:
        """Replace products of states and rows by the gradients of the logits.

        Products beyond the targets become 0. With a sharded table the caller must still multiply
        them by the scales returned: this is cheaper on the smaller results of its matrix products.
        """
        products[len(targets) :] = 0
        products = products[: len(targets)]
        states, items = own = self.shard.local_indices(targets)
        scores = products[own] + self.bias[items]
        own_sums = self._normalize(products, targets, scores)
        log_sums = self._log_sums(own_sums)
        losses = log_sums[states] - scores
        self.losses.append(losses)
        # The gradient of a target's logit is p - 1; expm1 is exact where p is near 1.
        of_own = torch.expm1(-losses)
        self.bias_grad.index_put_((items,), of_own, accumulate=True)
        if self.shard.is_whole:
            products[own] = of_own.to(products.dtype)
            return None
        scales = (own_sums - log_sums).exp().clamp(min=LEAST_SCALE)
        products[own] = 0
        for _, logits, weights in self._parts(products, scales):
            self.bias_grad.addmv_(logits.T, weights)
        products[own] = (of_own / scales[states]).to(products.dtype)
        return scales

    def _normalize(
        self, products: Float[Tensor, "t m"], targets: Targets, scores: Float[Tensor, " o"]
    ) -> Float[Tensor, " t"]:
        """Replace products by the probabilities of a softmax over the items held here.

        Returns the logs of its sums. If these are all items, adds the probabilities, before they
        are rounded, to the gradient of the bias, and sets those of the targets to 0.
        """
        highest = self.bias.new_empty(len(products))
        largest = torch.empty_like(highest)
        own = (targets[:, None], scores[:, None]) if self.shard.is_whole else ()
        for part, logits, best, most, *of_own in self._parts(products, highest, largest, *own):
            logits += self.corrected_bias
            if self.is_corrected:
                logits.scatter_(1, *of_own)
            torch.amax(logits, 1, out=best)
            torch.softmax(logits, 1, out=logits)
            torch.amax(logits, 1, out=most)
            if of_own:
                logits.scatter_(1, of_own[0], 0.0)
                self.bias_grad.addmv_(logits.T, torch.ones_like(best))
            part.copy_(logits)
        return highest - largest.log()  # the largest probability is 1 / sum exp(logit - highest)

    def _parts(
        self, products: Float[Tensor, "t m"], *others: Float[Tensor, "t ..."] | Int[Tensor, "t 1"]
    ) -> Iterator[tuple[Tensor, ...]]:
        """Yield products of some states, the same as logits, and the others of the same states.

        On a CPU a few states at a time, which stay in its cache from one pass to the next;
        elsewhere all at once. Logits have the dtype of the bias: they are the products themselves,
        or a copy that is valid until the next part.
        """
        n_rows = len(products)
        if products.device.type == "cpu":
            n_rows = torch.get_num_threads() * rows_per_chunk(products.shape[1], CACHE_MIB)
        is_exact = products.dtype == self.bias.dtype
        buffer = None if is_exact else torch.empty_like(products[:n_rows], dtype=self.bias.dtype)
        parts = (torch.split(each, n_rows) for each in (products, *others))
        for part, *more in zip(*parts, strict=True):
            yield part, part if buffer is None else buffer[: len(part)].copy_(part), *more

    def _log_sums(self, own_sums: Float[Tensor, " t"]) -> Float[Tensor, " t"]:
        """Logs of the sums over all items."""
        return own_sums if self.shard.is_whole else self.shard.stack(own_sums).logsumexp(0)
