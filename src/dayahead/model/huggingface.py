"""Bodies from the transformers zoo: any model type that reads vectors instead of ids."""

import dataclasses
import difflib
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any, Literal

import torch
from huggingface_hub.errors import StrictDataclassError
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from transformers import CONFIG_MAPPING, MODEL_MAPPING, AutoModel, PretrainedConfig

from dayahead.config.params import ModelConfig
from dayahead.core.errors import ConfigError

Sight = Literal["both", "past", "permuted", "square"]
"""How a model is told what it may see: both ways but no padding; by itself only the past, and
padding lies behind; by XLNet's permutation mask; by a mask [B, 1, L, L]."""

WIDTHS = "hidden_size d_model n_embd dim emb_dim embed_dim embedding_size input_embedding_size"
DEPTHS = (
    "num_hidden_layers n_layer n_layers num_layers num_encoder_layers num_decoder_layers "
    "encoder_layers decoder_layers"
)
HEADS = (
    "num_attention_heads n_head n_heads num_heads attention_heads encoder_attention_heads "
    "decoder_attention_heads num_encoder_attention_heads num_decoder_attention_heads"
)
GROUPS = "num_key_value_heads num_kv_heads"
HEAD_DIMS = "head_dim d_kv attention_head_size"
INNERS = (
    "intermediate_size moe_intermediate_size n_inner d_inner ffn_dim d_ff dff hidden_dim "
    "ffn_hidden_size feed_forward_size encoder_ffn_dim decoder_ffn_dim"
)
LENGTHS = "max_position_embeddings n_positions n_ctx max_seq_len"
INIT_STDS = "initializer_range init_std initializer_std embed_init_std"
DROPOUT = re.compile(r"(?!.*(classifier|summary|pooler|path)).*drop(out)?(_rate|_prob|_p)?$")
SETTLED = frozenset(f"{WIDTHS} {DEPTHS} {HEADS} vocab_size use_cache is_decoder causal".split())
OFFSET = 2
"""Rows of a position table that RoBERTa and its kin leave out before the first event's."""

MISBUILT = (
    *(ValueError, TypeError, AttributeError, LookupError, ImportError, ArithmeticError),
    *(RuntimeError, AssertionError, StrictDataclassError),
)
"""What the zoo raises over settings or inputs that a model type is not made for."""


class ZooBody(nn.Module):
    """A transformers model that reads [B, L, D] and writes [B, L, D]."""

    def __init__(self, transformer: nn.Module, sight: Sight) -> None:
        super().__init__()
        self.transformer: Any = transformer
        self.sight = sight

    def forward(
        self, inputs: Float[Tensor, "B L D"], is_event: Bool[Tensor, "B L"]
    ) -> Float[Tensor, "B L D"]:
        """Run the model; what is no event is never attended to."""
        hidden: Tensor = self.transformer(inputs_embeds=inputs, **self._masks(inputs, is_event))[0]
        if hidden.shape[-1] == 2 * inputs.shape[-1]:  # Reformer's two reversible streams
            hidden = torch.stack(hidden.chunk(2, dim=-1)).mean(0)
        return hidden

    def _masks(
        self, inputs: Float[Tensor, "B L D"], is_event: Bool[Tensor, "B L"]
    ) -> dict[str, Tensor]:
        if self.sight == "past":
            return {}
        if self.sight == "both":
            return {"attention_mask": is_event.to(inputs.dtype)}
        steps = torch.arange(inputs.shape[1], device=inputs.device)
        is_later = (steps > steps[:, None]).to(inputs.dtype).expand(len(inputs), -1, -1)
        if self.sight == "permuted":
            return {"perm_mask": is_later}
        return {"attention_mask": torch.finfo(inputs.dtype).min * is_later[:, None]}

    def queried(
        self,
        inputs: Float[Tensor, "B L D"],
        is_event: Bool[Tensor, "B L"],
        is_hidden: Bool[Tensor, "B L L"],
        places: Int[Tensor, "B T"],
    ) -> Float[Tensor, "B T D"]:
        """XLNet's second stream, which knows places but not what stands there.

        Before the session stands a mark that all see and nothing asks, as [SEP] and [CLS] do in
        Yang et al. 2019: of one event alone a softmax takes the same on either side of it.
        """
        mark = self.transformer.get_input_embeddings().weight  # [1, D], of no use else
        marked = torch.cat([mark.expand(len(inputs), 1, -1), inputs], dim=1)
        is_hidden = nn.functional.pad(is_hidden, (1, 0, 1, 0))
        is_hidden[:, 0, 1:] = True  # the mark sees nothing that it could pass on
        hidden: Tensor = self.transformer(
            inputs_embeds=marked,
            attention_mask=nn.functional.pad(is_event, (1, 0), value=True).to(inputs.dtype),
            perm_mask=is_hidden.to(inputs.dtype),
            target_mapping=nn.functional.one_hot(places + 1, marked.shape[1]).to(inputs.dtype),
        ).last_hidden_state
        return hidden

    def attention_weights(
        self, inputs: Float[Tensor, "B L D"], is_event: Bool[Tensor, "B L"]
    ) -> list[Float[Tensor, "B H L L"]]:
        """Weights of every layer; rows are what attends, columns what is attended to."""
        used = self.transformer.config._attn_implementation
        self.transformer.set_attn_implementation("eager")  # the faster ones keep no weights
        masks = self._masks(inputs, is_event)
        try:
            output = self.transformer(inputs_embeds=inputs, output_attentions=True, **masks)
        finally:
            self.transformer.set_attn_implementation(used)
        return list(output.get("attentions") or ())


def zoo_bodies(config: ModelConfig, *, causal: bool, max_length: int) -> Iterator[ZooBody]:
    """Build the model type in each way in which it might see what it is to see.

    Raises:
        ConfigError: the type reads no vectors or does not take our sizes, or model.config does
            not fit it.
    """
    name = config.architecture
    zoo_config = _zoo_config(config, causal, max_length)
    sights: tuple[Sight, ...] = ("past", "square") if causal else ("both",)
    for sight in ("permuted",) if causal and name == "xlnet" else sights:
        yield ZooBody(_transformer(zoo_config, causal), sight)


def _transformer(zoo_config: PretrainedConfig, causal: bool) -> nn.Module:
    """AutoModel takes SDPA where the model offers it."""
    offered = inspect.signature(_model_class(zoo_config).__init__).parameters
    extras = {"add_pooling_layer": False} if "add_pooling_layer" in offered else {}
    model = AutoModel.from_config(zoo_config, **extras)
    if zoo_config.is_encoder_decoder:
        model = model.get_decoder() if causal else model.get_encoder()
    model.get_input_embeddings().requires_grad_(False)  # no ids are read, but Longformer's padding
    transformer: nn.Module = model
    return transformer


def _model_class(zoo_config: PretrainedConfig) -> Any:  # noqa: ANN401
    found = MODEL_MAPPING[type(zoo_config)]
    return found[0] if isinstance(found, tuple) else found


def _zoo_config(config: ModelConfig, causal: bool, max_length: int) -> PretrainedConfig:
    name = config.architecture
    cls = CONFIG_MAPPING[name]
    if cls.sub_configs:
        types = [getattr(part, "model_type", "") for part in cls.sub_configs.values()]
        parts = " or ".join(part for part in types if part in CONFIG_MAPPING)
        raise ConfigError(
            f"model.architecture: {name} is made of several models; name a single one"
            f"{f' ({parts})' if parts else ''}"
        )
    own = {f.name: f.default for f in dataclasses.fields(cls)}
    _check_heads(config, own)
    _check_overrides(config, own, cls.attribute_map)
    values = _sizes(config, max_length) | _settled(own, config, causal)
    if special := SPECIALS.get(name):
        values |= special(config, max_length)
    if config.dropout and not any(DROPOUT.match(name) and values.get(name) for name in own):
        raise ConfigError(
            f"model.dropout: {name} has none; set it to 0 (model.input_dropout stands before it)"
        )
    made = cls(**{name: value for name, value in values.items() if name in own} | config.config)
    if (made.hidden_size, made.num_hidden_layers) != (config.d_model, config.n_layer):
        raise ValueError("its sizes have names that are not known")
    if "inputs_embeds" not in inspect.signature(_model_class(made).forward).parameters:
        raise ValueError("it reads ids, images or sound, and no vectors (inputs_embeds)")
    return made


def _check_heads(config: ModelConfig, own: dict[str, Any]) -> None:
    if config.d_model % config.n_head and not own.keys().isdisjoint(HEADS.split()):
        raise ConfigError(
            f"model.d_model ({config.d_model}) must be a multiple of model.n_head "
            f"({config.n_head}) with {config.architecture}"
        )


def _check_overrides(config: ModelConfig, own: dict[str, Any], aliases: dict[str, str]) -> None:
    general = {f.name for f in dataclasses.fields(PretrainedConfig)}
    known = sorted(own.keys() - general - SETTLED)
    for name in config.config:
        if name in SETTLED or aliases.get(name) in SETTLED:
            raise ConfigError(
                f"model.config.{name}: follows from the other settings; set model.d_model, "
                f"model.n_layer, model.n_head or task.name instead"
            )
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            raise ConfigError(
                f"model.config.{name}: {config.architecture} has no such field"
                f"{f' (did you mean {close[0]}?)' if close else ''}; known are {', '.join(known)}"
            )


def _sizes(config: ModelConfig, max_length: int) -> dict[str, Any]:
    """What each name for a size is set to."""
    named = {
        WIDTHS: config.d_model,
        DEPTHS: config.n_layer,
        HEADS: config.n_head,
        GROUPS: config.n_head,
        HEAD_DIMS: config.d_model // config.n_head,
        INNERS: 4 * config.d_model,
        LENGTHS: max_length + OFFSET,
        INIT_STDS: config.init_std,
    }
    return {name: value for names, value in named.items() for name in names.split()}


def _settled(own: dict[str, Any], config: ModelConfig, causal: bool) -> dict[str, Any]:
    """What follows from the fields' own defaults, and what is the same for every type."""
    dropouts = {
        name: 0.0 if "layer" in name else config.dropout
        for name, default in own.items()
        if DROPOUT.match(name) and type(default) in (float, int)
    }
    # gelu_new is the same function, written out in Python: four times the step on a CPU.
    activations = {name: "gelu_pytorch_tanh" for name in own if own[name] == "gelu_new"}
    ids = {name: 0 for name in own if name.endswith("_token_id")}
    sight = {} if own.get("is_encoder_decoder") else {"is_decoder": causal, "causal": causal}
    return dropouts | activations | ids | sight | {"vocab_size": 1, "use_cache": False}


def _longformer(config: ModelConfig, max_length: int) -> dict[str, Any]:
    """Let windows, which reach half their size to either side, hold a session.

    Inputs are padded to whole windows.
    """
    return {
        "attention_window": 2 * max_length,
        "max_position_embeddings": 2 * max_length + OFFSET,
    }


def _reformer(config: ModelConfig, max_length: int) -> dict[str, Any]:
    """Let a chunk hold a session: its attention is then exact, and nothing is hashed."""
    kinds = ("local", "lsh") * config.n_layer
    return {
        "attn_layers": kinds[: config.n_layer],
        "local_attn_chunk_length": max_length,
        "lsh_attn_chunk_length": max_length,
        "axial_pos_embds": False,
    }


def _mamba2(config: ModelConfig, max_length: int) -> dict[str, Any]:
    head_dim = 2 * config.d_model // config.n_head
    return {"expand": 2, "num_heads": config.n_head, "head_dim": head_dim, "n_groups": 1}


SPECIALS: dict[str, Callable[[ModelConfig, int], dict[str, Any]]] = {
    "gpt2": lambda *_: {"activation_function": "gelu"},
    "gpt_neo": lambda config, _: {"attention_types": [[["global"], config.n_layer]]},
    "gptj": lambda config, _: {"rotary_dim": config.d_model // config.n_head},
    "longformer": _longformer,
    "mamba2": _mamba2,
    "mpnet": lambda *_: {"vocab_size": 2},
    "reformer": _reformer,
    "xlnet": lambda *_: {"use_mems_eval": False},
}
"""What a type wants beyond the names of sizes."""
