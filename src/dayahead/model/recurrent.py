"""Bodies without attention: recurrence over a session, and the mean of its events so far."""

from jaxtyping import Bool, Float
from torch import Tensor, nn

from dayahead.config.params import ModelConfig

CELLS: dict[str, type[nn.GRU | nn.LSTM | nn.RNN]] = {"gru": nn.GRU, "lstm": nn.LSTM, "rnn": nn.RNN}


class Recurrent(nn.Module):
    """gru (Hidasi et al. 2015), lstm or rnn (tanh), from a session's first event to its last.

    Padding lies behind the events, so no event's state comes after it. Initial values are torch's
    own, for a recurrence that starts near zero forgets at once.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.cell = CELLS[config.architecture](
            config.d_model,
            config.d_model,
            config.n_layer,
            batch_first=True,  # else the recurrence runs over the sessions of a batch
            dropout=config.dropout if config.n_layer > 1 else 0.0,  # after each layer but the last
        )
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self, inputs: Float[Tensor, "B L D"], is_event: Bool[Tensor, "B L"]
    ) -> Float[Tensor, "B L D"]:
        """State after each event."""
        hidden: Tensor = self.dropout(self.cell(inputs)[0])
        return hidden


class Average(nn.Module):
    """`avg`: the mean of the events up to each one; it has nothing to learn."""

    def forward(
        self, inputs: Float[Tensor, "B L D"], is_event: Bool[Tensor, "B L"]
    ) -> Float[Tensor, "B L D"]:
        """Mean of each event and those before it."""
        counts = is_event.new_ones(inputs.shape[1]).cumsum(0)  # [L]
        return inputs.cumsum(1) / counts[:, None]
