"""Backbones: sequence encoders by name, built and checked to see only what the task allows."""

from collections.abc import Iterator
from typing import TypeVar, cast

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn
from transformers import CONFIG_MAPPING

from dayahead.config.baselines import OWN_NETWORKS
from dayahead.config.model import GRU4REC, ModelConfig
from dayahead.core.errors import ConfigError
from dayahead.core.plugins import Kind, load_plugin
from dayahead.model.huggingface import (
    BUILD_ERRORS,
    EventMask,
    HuggingFaceBackbone,
    Vectors,
    Weights,
    huggingface_backbones,
)
from dayahead.model.ligr import LiGR
from dayahead.model.packed_sessions import PackedSessions, pack_sessions
from dayahead.model.tasks import Attention, is_before

T = TypeVar("T")
CELLS: dict[str, type[nn.GRU | nn.LSTM | nn.RNN]] = {
    "gru": nn.GRU,
    "lstm": nn.LSTM,
    "rnn": nn.RNN,
    GRU4REC: nn.GRU,
}
N_SPLITS = 16
"""Positions at which the causality check splits a session; all of them in a short one."""
TOLERANCE = 2e-6
"""Allowed difference, relative to the largest output: sums in another order round differently."""


class Backbone(nn.Module):
    """Encodes [B, L, D] as [B, L, D]; padding is never attended to.

    With causal attention no position sees a later one; otherwise every position sees both sides.
    With permutation attention `query_stream` is called instead of `forward`. At most `max_length`
    positions are read at once, and D is the config's `d_model`.

    Raises:
        ConfigError: the architecture is unknown, does not accept the settings, or sees more or less
            than the task needs.
    """

    def __init__(self, config: ModelConfig, attention: Attention, max_length: int) -> None:
        super().__init__()
        self.architecture = config.architecture
        # The causality check splits a session, so it needs at least two positions.
        self.max_length = max_length = max(2, max_length)
        self.network = _checked_network(config, attention == "causal", max_length)
        if attention == "permutation" and config.architecture != "xlnet":
            raise ConfigError(
                f"{config.setting}: {config.architecture} has no query stream, which task.name: "
                f"plm needs; set {config.setting} to xlnet or task.name to mlm"
            )
        self._freeze_unused(config.d_model, max_length, attention)

    def forward(self, inputs: Vectors, lengths: Int[Tensor, " B"]) -> Vectors:
        """Encode to float32; under autocast the output dtype depends on the model type."""
        hidden: Tensor = self.network(inputs, _is_event(inputs, lengths))
        return hidden.float()

    def packs_on(self, device: torch.device) -> bool:
        """Whether to call `forward_packed`, which computes less padding."""
        return isinstance(self.network, HuggingFaceBackbone) and self.network.packs_on(device)

    def pack(self, lengths: Int[Tensor, " B"], like: Shaped[Tensor, "B L"]) -> PackedSessions:
        """Pack the sessions of a batch into rows; only the shape of `like` is used."""
        return pack_sessions(_is_event(like, lengths), self.max_length)

    def forward_packed(
        self, rows: Float[Tensor, "R W D"], packed: PackedSessions
    ) -> Float[Tensor, "R W D"]:
        """Encode packed sessions: events have the same states, padding has arbitrary ones."""
        return cast("HuggingFaceBackbone", self.network).forward_packed(rows, packed).float()

    def query_stream(
        self,
        inputs: Vectors,
        lengths: Int[Tensor, " B"],
        is_hidden: Bool[Tensor, "B L L"],
        positions: Int[Tensor, "B T"],
    ) -> Float[Tensor, "B T D"]:
        """States of positions whose own events are hidden: XLNet's two streams (Yang et al. 2019).

        `is_hidden` [b, i, j] is set where i must not see j. Where [b, i, i] is set, the query at i
        does not see the event there; the content stream always does.
        """
        network, is_event = cast("HuggingFaceBackbone", self.network), _is_event(inputs, lengths)
        return network.query_stream(inputs, is_event, is_hidden, positions).float()

    def attention_weights(self, inputs: Vectors, lengths: Int[Tensor, " B"]) -> Weights:
        """Each layer's weights between events; rows sum to 1.

        Raises:
            ConfigError: there are none, or not of this shape (Longformer's are per window).
        """
        weights: list[Tensor] = []
        if isinstance(self.network, HuggingFaceBackbone):
            weights = self.network.attention_weights(inputs, _is_event(inputs, lengths))
        square = (len(inputs), inputs.shape[1], inputs.shape[1])
        if not weights or any((len(w), *w.shape[2:]) != square for w in weights):
            raise ConfigError(
                f"evaluation.attention_of: {self.architecture} has no attention weights between "
                f"events; empty the list, or set model.architecture to gpt2, xlnet or bert"
            )
        return weights

    @torch.enable_grad()
    def _freeze_unused(self, d_model: int, max_length: int, attention: Attention) -> None:
        """Freeze parameters the output does not depend on (word tables, XLNet's mask, segments).

        DDP waits for the gradient of every parameter that requires one.
        """
        inputs, lengths = torch.ones(1, max_length, d_model), torch.tensor([max_length])
        if attention == "permutation":
            is_hidden = torch.eye(max_length).bool()[None]
            output = self.query_stream(inputs, lengths, is_hidden, torch.tensor([[0]]))
        else:
            output = self(inputs, lengths)
        if output.requires_grad:  # `avg` has no parameters
            torch.autograd.backward(output.sum())
        for parameter in self.parameters():
            parameter.requires_grad_(parameter.grad is not None)  # never true of a word table
            parameter.grad = None


def _is_event(inputs: Tensor, lengths: Int[Tensor, " B"]) -> EventMask:
    """Attention mask; an empty row keeps its first position, because a softmax over none is NaN."""
    return is_before(lengths.clamp(min=1), inputs)


def _checked_network(config: ModelConfig, causal: bool, max_length: int) -> nn.Module:
    """The first of the architecture's variants that passes the causality check."""
    name = config.architecture
    error: str | None = None
    try:
        for network in _networks(config, causal, max_length):
            found = receptive_field_error(network, config.d_model, max_length, causal=causal)
            if found is None:
                if isinstance(network, HuggingFaceBackbone):
                    network.packs = can_pack(network, config.d_model, max_length)
                return network
            error = error or found
    except BUILD_ERRORS as build_error:
        if error is None:
            raise ConfigError(
                f"{config.setting}: {name} cannot be built with d_model {config.d_model}, "
                f"n_layer {config.n_layer}, n_head {config.n_head} and model.config "
                f"{config.config}: {build_error}"
            ) from None
    needed = "past only" if causal else "past and the future"
    cure = (
        f"mlm, or {config.setting} to gpt2, xlnet, bert or gru"
        if causal
        else f"clm or {config.setting} to bert or xlnet"
    )
    raise ConfigError(
        f"{config.setting}: {name} does not fit the task, which needs a backbone that sees the "
        f"{needed}: {error}; set task.name to {cure}"
    )


def _networks(config: ModelConfig, causal: bool, max_length: int) -> Iterator[nn.Module]:
    name = config.architecture
    if name in OWN_NETWORKS:
        if config.config:
            raise ConfigError(f"model.config: {name} has no further fields; leave it empty")
        if name == GRU4REC:
            _check_gru4rec(config)
        if name == "avg" and config.dropout:
            raise ConfigError("model.dropout: avg has no dropout; set it to 0")
        yield _own_network(config, max_length)
    elif name in CONFIG_MAPPING:
        yield from huggingface_backbones(config, causal=causal, max_length=max_length)
    else:
        expected = "torch.nn.Module or of dayahead.model.counting.Baseline"
        network = plugin_class("backbone", name, nn.Module, expected)
        yield network(config, causal=causal, max_length=max_length)


def plugin_class(kind: Kind, name: str, base: type[T], expected: str) -> type[T]:
    """Import a class that is not ours; in errors `expected` says what it must be a subclass of."""
    found = load_plugin(kind, name)
    # Before it is called: a model folder from elsewhere may name it, and give its arguments.
    if not (isinstance(found, type) and issubclass(found, base)):
        raise ConfigError(
            f"params.yaml: model.architecture: {name}: expected a subclass of {expected}, found "
            f"{found!r}"
        )
    return found


def _own_network(config: ModelConfig, max_length: int) -> nn.Module:
    if config.architecture == "avg":
        return Average()
    return LiGR(config, max_length) if config.architecture == "ligr" else Recurrent(config)


def _check_gru4rec(config: ModelConfig) -> None:
    """Raise ConfigError unless one table of item vectors is all that is read and scored with."""
    is_official = {
        "features": not config.features,
        "item_embedding_dim": config.item_dim == config.d_model,
        "feature_norm": not config.feature_norm,
        "activation": config.activation == "none",
        "tie_weights": config.tie_weights,
    }
    found = [f"{name}: {getattr(config, name)}" for name, is_so in is_official.items() if not is_so]
    if found:
        raise ConfigError(
            f"params.yaml: model: {GRU4REC} reads item ids alone and scores with the vectors that "
            f"it reads, and found {', '.join(found)}; expected features: [], item_embedding_dim: "
            f"null, feature_norm: false, activation: none, tie_weights: true; correct it, or set "
            f"{config.setting} to gru"
        )


@torch.no_grad()
def can_pack(network: HuggingFaceBackbone, d_model: int, max_length: int) -> bool:
    """Whether packed sessions get the same states as alone, tested by running the network."""
    half = max(1, max_length // 2)
    lengths = torch.tensor([max_length, half, max_length - half])
    noise = torch.Generator().manual_seed(0)
    inputs = torch.randn(len(lengths), max_length, d_model, generator=noise)
    is_event, was_training = _is_event(inputs, lengths), network.training
    network.eval()
    try:
        alone = network(inputs.clone(), is_event)[is_event]
        sessions = pack_sessions(is_event, max_length)
        rows = network.forward_packed(sessions.pack(inputs), sessions)
        packed = sessions.take(rows, is_event)
    except BUILD_ERRORS:
        return False
    finally:
        network.train(was_training)
    return bool((packed - alone).abs().max() <= 10 * TOLERANCE * alone.abs().max())


class Recurrent(nn.Module):
    """gru (Hidasi et al. 2015), lstm or rnn (tanh) over a session's events in order.

    Padding comes after the events, so no event's state depends on it. Weights keep torch's
    initialisation: with weights near zero, a recurrent network forgets its state at once.

    gru4rec is a gru as in its authors' program (Hidasi and Karatzoglou 2018): weights start uniform
    by the sizes of each gate (Glorot and Bengio 2010), biases at 0. There a step is one event of
    each of several sessions, and the next step goes on from the state after dropout, without its
    gradient; here a step is whole sessions, with backpropagation through them.
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
        if config.architecture == GRU4REC:
            self._start_as_glorot()

    @torch.no_grad()
    def _start_as_glorot(self) -> None:
        for parameter in self.cell.parameters():
            if parameter.dim() == 1:
                nn.init.zeros_(parameter)
            else:
                # torch stacks the matrices of a GRU's three gates; the range is that of each alone.
                for gate in parameter.chunk(3):
                    nn.init.xavier_uniform_(gate)

    def forward(self, inputs: Vectors, is_event: EventMask) -> Vectors:
        """State after each event; in float32 on a GPU, where cuDNN autocasts to float16 only."""
        if inputs.is_cuda:
            with torch.autocast("cuda", enabled=False):
                states = self.cell(inputs.float())[0]
        else:
            states = self.cell(inputs)[0]
        hidden: Tensor = self.dropout(states)
        return hidden


class Average(nn.Module):
    """`avg`: the mean of the events up to each one; no parameters."""

    def forward(self, inputs: Vectors, is_event: EventMask) -> Vectors:
        """Mean of each event and those before it."""
        # No mask: padding comes after the events, so that no event's mean includes it.
        counts = is_event.new_ones(inputs.shape[1]).cumsum(0)  # [L]
        return inputs.cumsum(1) / counts[:, None]


@torch.no_grad()
def receptive_field_error(
    network: nn.Module, d_model: int, max_length: int, *, causal: bool
) -> str | None:
    """Check by perturbation what each position sees; the first violation, or None.

    Only the outputs of an arbitrary transformers type show whether an event sees a later one,
    padding or other sessions. The batch: one session; the session with every event changed from a
    split on, for each split; its first half; that half with padding that is not zero.
    """
    noise = torch.Generator().manual_seed(0)
    session, other = torch.randn(2, max_length, d_model, generator=noise)
    splits = sorted({round(s) for s in torch.linspace(1, max_length - 1, N_SPLITS).tolist()})
    half = max(1, max_length // 2)
    # Ten times as large, so that even a small leak exceeds the tolerance.
    changed = [torch.cat([session[:split], 10 * other[split:]]) for split in splits]
    halved = torch.cat([session[:half], torch.zeros_like(session[half:])])
    padded = torch.cat([session[:half], 10 * other[half:]])
    inputs = torch.stack([session, *changed, halved, padded])  # [R, L, D]
    lengths = torch.tensor([max_length] * (1 + len(splits)) + [half] * 2)
    was_training = network.training
    network.eval()
    # Cloned, because some types (ctrl) scale their input in place.
    outputs = network(inputs.clone(), _is_event(inputs, lengths))
    if outputs.shape != inputs.shape or not outputs.isfinite().all():
        expected, found = list(inputs.shape), list(outputs.shape)
        return f"it returns {found}, or NaN or infinity, where finite {expected} is expected"
    alone = network(inputs[-2:-1, :half].clone(), _is_event(inputs[:1, :half], lengths[-1:]))
    network.train(was_training)
    whole, changed, (halved, padded) = outputs[0], outputs[1:-2], outputs[-2:, :half]
    tolerance = TOLERANCE * whole.abs().max()
    sees_later = [
        bool((version - whole)[:split].abs().max() > tolerance)
        for version, split in zip(changed, splits, strict=True)
    ]
    if causal and any(sees_later):
        return "it lets an event see a later one"
    if (halved - padded).abs().max() > tolerance:
        return "it attends to padding"
    # Looser: a batch of another shape may be summed in another order.
    if (halved - alone[0]).abs().max() > 10 * tolerance:
        return "its output for a session depends on other sessions in the batch or their length"
    if not causal and not all(sees_later):
        return "it sees the past only"
    return None
