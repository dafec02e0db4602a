"""A network's recommendations as one module of torch operators, which `torch.export` can trace."""

from collections.abc import Mapping

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import pad

from dayahead.core.columns import IS_PAST, ITEM_ID, N_RESERVED
from dayahead.model.inputs import without_later
from dayahead.model.next_item import NextItemModel


class ExportedScorer(nn.Module):
    """The best candidates after right-padded sessions; equals `NextItemModel.scorer`.

    The scorer cuts a batch to its longest session, for which it reads the lengths' values; this
    always computes the whole width, so that no shape depends on a value.

    Args:
        model: the network; only the candidates' rows of its table are copied.
        candidates: vocabulary indices.
        known: number of values of each vocabulary; later ones are read as unknown, as in
            `recommend`.
        top_k: number of items to return.
    """

    candidates: Tensor
    rows: Tensor
    bias: Tensor

    def __init__(
        self,
        model: NextItemModel,
        candidates: Int[Tensor, " C"],
        known: Mapping[str, int],
        top_k: int,
    ) -> None:
        super().__init__()
        self.known = known
        self.model = model.eval()
        self.attention = model.task.attention
        self.temperature = model.loss_config.temperature
        layer = model.output_layer.at_temperature(self.temperature)
        rows, bias = layer.rows(candidates - N_RESERVED)
        self.register_buffer("candidates", candidates)
        self.register_buffer("rows", rows.detach().clone())
        self.register_buffer("bias", bias.detach().clone())
        self.top_k = min(top_k, len(candidates))

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that are read, the item id first."""
        inputs = self.model.inputs
        past = (IS_PAST,) if self.model.config.past_length else ()
        return (*inputs.tables, *inputs.kinds, *past)

    def forward(
        self, columns: Mapping[str, Tensor], n_known: Int[Tensor, " B"]
    ) -> tuple[Int[Tensor, "B K"], Float[Tensor, "B K"]]:
        """Return the vocabulary indices and scores of the best candidates, best first.

        Args:
            columns: [B, L] each, as in window files.
            n_known: events of each session, from 1 to L.
        """
        read = without_later(columns, self.known, keeps_own_items=True)
        states = self.model.project_out(self._states(read, n_known)) / self.temperature
        scores = states @ self.rows.T + self.bias
        highest, where = scores.topk(self.top_k)
        return self.candidates[where], highest

    def _states(
        self, columns: Mapping[str, Tensor], n_known: Int[Tensor, " B"]
    ) -> Float[Tensor, "B D"]:
        """Hidden state that predicts each session's next item, as its task has it."""
        is_causal = self.attention == "causal"
        if not is_causal:  # the next event, which is masked, takes one position more
            columns = {name: pad(values, (0, 1)) for name, values in columns.items()}
        at = n_known - 1 if is_causal else n_known
        lengths = at + 1
        inputs = self.model.inputs(columns, self.model.inputs.items(columns[ITEM_ID]))
        is_at = torch.arange(inputs.shape[1], device=inputs.device) == at[:, None]
        if not is_causal:
            inputs = torch.where(is_at[..., None], self.model.mask, inputs)
        if self.attention == "permutation":
            is_hidden = is_at[:, None, :].expand(-1, inputs.shape[1], -1)
            states: Tensor = self.model.body.query_stream(inputs, lengths, is_hidden, at[:, None])
            return states[:, 0]
        hidden: Tensor = self.model.body(inputs, lengths)
        # Not hidden[is_at]: the shape of its result would depend on values, which cannot be traced.
        index = at[:, None, None].expand(-1, 1, hidden.shape[2])
        return hidden.gather(1, index).squeeze(1)
