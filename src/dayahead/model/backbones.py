"""The body of a next-item model: named by the settings, built, and proven to see what it may."""

import difflib
from collections.abc import Iterator
from typing import cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from transformers import CONFIG_MAPPING

from dayahead.config.params import COUNTED, ModelConfig
from dayahead.core.errors import ConfigError
from dayahead.model.causality import Probe
from dayahead.model.huggingface import MISBUILT, ZooBody, zoo_bodies
from dayahead.model.recurrent import CELLS, Average, Recurrent

ATTENTIVE = ("gpt2", "xlnet", "bert", "albert", "electra", "longformer", "reformer")
"""Those of the zoo that the paper or its code names; every other one may be named too."""
WITHOUT_ATTENTION = (*CELLS, "avg")
RETIRED = ("transfo-xl", "transfoxl", "transformer-xl")
CURES = {
    True: "set task.name to mlm, or model.architecture to gpt2, xlnet, bert or gru",
    False: "set task.name to clm or model.architecture to bert or xlnet",
}


class Body(nn.Module):
    """Reads [B, L, D] and writes [B, L, D]; padding is never attended to.

    With `causal` no position sees a later one; without, every one sees both sides.
    """

    def __init__(
        self, config: ModelConfig, *, causal: bool, max_length: int, has_queries: bool = False
    ) -> None:
        """Build the body and prove what it sees.

        Args:
            config: architecture and sizes; the width is `d_model`.
            causal: what the task wants.
            max_length: most positions read at once.
            has_queries: whether `queried` will be asked instead of `forward`.

        Raises:
            ConfigError: the architecture is unknown, does not take the settings, or does not see
                what it must and no more.
        """
        super().__init__()
        self.architecture = config.architecture
        max_length = max(2, max_length)
        self.network = _proven_network(config, causal, max_length)
        if has_queries and config.architecture != "xlnet":
            raise ConfigError(
                f"model.architecture: {config.architecture} has no stream of queries, which "
                f"task.name: plm asks; set model.architecture to xlnet or task.name to mlm"
            )
        self._freeze_unreached(config.d_model, max_length, has_queries=has_queries)

    def forward(
        self, inputs: Float[Tensor, "B L D"], lengths: Int[Tensor, " B"]
    ) -> Float[Tensor, "B L D"]:
        """Run the body; float32 under autocast too, for some types write what autocast left."""
        hidden: Tensor = self.network(inputs, _is_event(inputs, lengths))
        return hidden.float()

    def queried(
        self,
        inputs: Float[Tensor, "B L D"],
        lengths: Int[Tensor, " B"],
        is_hidden: Bool[Tensor, "B L L"],
        places: Int[Tensor, "B T"],
    ) -> Float[Tensor, "B T D"]:
        """Ask at places whose own events are not read: XLNet's two streams (Yang et al. 2019).

        Args:
            inputs: the events.
            lengths: events of each session.
            is_hidden: [b, i, j] whether i must not see j; where [b, i, i] is set, the query at i
                does not see the event there (the stream of events always does).
            places: positions asked.
        """
        stream = cast("ZooBody", self.network)
        return stream.queried(inputs, _is_event(inputs, lengths), is_hidden, places).float()

    def attention_weights(
        self, inputs: Float[Tensor, "B L D"], lengths: Int[Tensor, " B"]
    ) -> list[Float[Tensor, "B H L L"]]:
        """Each layer's weights; [b, h, i, j] is what event i takes from event j, rows sum to 1.

        Raises:
            ConfigError: the body has none, or none of this shape (Longformer's are of windows).
        """
        weights: list[Tensor] = []
        if isinstance(self.network, ZooBody):
            weights = self.network.attention_weights(inputs, _is_event(inputs, lengths))
        square = (len(inputs), inputs.shape[1], inputs.shape[1])
        if not weights or any((len(w), *w.shape[2:]) != square for w in weights):
            raise ConfigError(
                f"evaluation.attention_of: {self.architecture} has no attention weights of events "
                f"to events; empty the list, or set model.architecture to gpt2, xlnet or bert"
            )
        return weights

    @torch.enable_grad()
    def _freeze_unreached(self, d_model: int, max_length: int, *, has_queries: bool) -> None:
        """Freeze what vectors never reach (word tables, XLNet's mask and segments).

        DDP waits for the gradient of every parameter that wants one.
        """
        inputs, lengths = torch.ones(1, max_length, d_model), torch.tensor([max_length])
        if has_queries:
            is_hidden = torch.eye(max_length).bool()[None]
            output = self.queried(inputs, lengths, is_hidden, torch.tensor([[0]]))
        else:
            output = self(inputs, lengths)
        if output.requires_grad:  # `avg` has nothing to learn
            torch.autograd.backward(output.sum())
        for parameter in self.parameters():
            parameter.requires_grad_(parameter.grad is not None)  # never true of a word table
            parameter.grad = None


def _is_event(inputs: Float[Tensor, "B L D"], lengths: Int[Tensor, " B"]) -> Bool[Tensor, "B L"]:
    """An empty row attends to its first position: a softmax over nothing is not a number."""
    steps = torch.arange(inputs.shape[1], device=inputs.device)
    return steps < lengths.clamp(min=1)[:, None]


def _proven_network(config: ModelConfig, causal: bool, max_length: int) -> nn.Module:
    name, fault = config.architecture, ""
    try:
        for network in _networks(config, causal, max_length):
            found = list(Probe(network, config.d_model, max_length).faults(causal=causal))
            if not found:
                return network
            fault = fault or found[0]
    except MISBUILT as error:
        if not fault:
            raise ConfigError(
                f"model.architecture: {name} cannot be built with d_model {config.d_model}, "
                f"n_layer {config.n_layer}, n_head {config.n_head} and model.config "
                f"{config.config}: {error}"
            ) from None
    wanted = "past only" if causal else "past and what follows"
    raise ConfigError(
        f"model.architecture: {name} does not fit the task, which wants a body that sees the "
        f"{wanted}: {fault}; {CURES[causal]}"
    )


def _networks(config: ModelConfig, causal: bool, max_length: int) -> Iterator[nn.Module]:
    name = config.architecture
    if name in WITHOUT_ATTENTION:
        if config.config:
            raise ConfigError(f"model.config: {name} has no further fields; leave it empty")
        if name == "avg" and config.dropout:
            raise ConfigError("model.dropout: avg has nothing to drop; set it to 0")
        yield Average() if name == "avg" else Recurrent(config)
    elif name in CONFIG_MAPPING:
        yield from zoo_bodies(config, causal=causal, max_length=max_length)
    else:
        raise ConfigError(f"model.architecture: {_unknown(name)}")


def _unknown(name: str) -> str:
    plain = name.lower().replace("_", "-")
    if plain in RETIRED:
        return (
            f"{name} left transformers in version 5; its heir, which took over its relative "
            f"positions, is xlnet with task.name: clm"
        )
    own = (*ATTENTIVE, *WITHOUT_ATTENTION, *COUNTED)
    close = " or ".join(difflib.get_close_matches(plain, {*own, *CONFIG_MAPPING}, n=3))
    return (
        f"{name} is unknown{f' (did you mean {close}?)' if close else ''}; expected "
        f"{', '.join(own)}, or any model type of transformers that reads vectors (llama, qwen3, "
        f"modernbert, mamba ...)"
    )
