"""Backbones from Hugging Face transformers: any model type that reads `inputs_embeds`."""

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

import torch
from huggingface_hub.errors import StrictDataclassError
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import (
    CONFIG_MAPPING,
    MODEL_MAPPING,
    AttentionInterface,
    AttentionMaskInterface,
    AutoModel,
    PretrainedConfig,
)
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from dayahead.config.model import ModelConfig
from dayahead.core.errors import ConfigError
from dayahead.core.suggestions import did_you_mean
from dayahead.model.packed_sessions import PackedSessions

Vectors = Float[Tensor, "B L D"]
EventMask = Bool[Tensor, "B L"]
"""True at events; padding comes after them."""
Weights = list[Float[Tensor, "B H L L"]]
"""Attention weights of each layer: [b, h, i, j] is event i's attention to event j."""
MaskStyle = Literal["padding", "none", "square"]
"""Attention mask passed to the model: padding only; none, because the model is causal itself and
padding comes last; a causal mask of pairs of events."""

FURTHER_NAMES = {
    "hidden_size": "embedding_size input_embedding_size",
    "num_hidden_layers": "encoder_layers decoder_layers num_encoder_layers num_decoder_layers",
    "num_attention_heads": "num_heads encoder_attention_heads decoder_attention_heads "
    "num_encoder_attention_heads num_decoder_attention_heads",
    "num_key_value_heads": "num_kv_heads",
    "head_dim": "d_kv attention_head_size",
    "intermediate_size": "moe_intermediate_size n_inner d_inner ffn_dim d_ff dff hidden_dim "
    "ffn_hidden_size feed_forward_size encoder_ffn_dim decoder_ffn_dim",
    "initializer_range": "init_std embed_init_std",
}
"""Further names of standard fields in some types, which their `attribute_map` does not list."""
DROPOUT = re.compile(r"(?!.*(classifier|summary|pooler|path)).*drop(out)?(_rate|_prob|_p)?$")
UNMASKED, MASKED = "sdpa_unmasked", "sdpa_masked"
"""SDPA on a GPU, with a fixed answer to whether the mask is needed. transformers would look at the
mask before each pass, and the host would wait for the GPU. Never for a causal model that attends to
all of the past, else always."""
WINDOWS = ("sliding_window", "local_attention", "attention_window", "attention_chunk_size")
"""Fields that limit attention to the latest events of the past."""
OFFSET = 2
"""Rows at the start of the position table that RoBERTa and similar types do not use for events."""
PLAIN_LENGTHS = {torch.bfloat16: range(257), torch.float32: range(12, 65)}
"""Session lengths for which the plain attention kernel is faster on a CPU, by product dtype."""

BUILD_ERRORS = (
    *(ValueError, TypeError, AttributeError, LookupError, ImportError, ArithmeticError),
    *(RuntimeError, AssertionError, StrictDataclassError),
)
"""What transformers raises for settings or inputs that a model type does not support."""


def _always_masked(*sizes: Any, **options: Any) -> Any:  # noqa: ANN401
    return sdpa_mask(*sizes, **options | {"allow_is_bidirectional_skip": False})


AttentionInterface.register(UNMASKED, sdpa_attention_forward)
AttentionInterface.register(MASKED, sdpa_attention_forward)
AttentionMaskInterface.register(MASKED, _always_masked)


class HuggingFaceBackbone(nn.Module):
    """A transformers model from [B, L, D] to [B, L, D]."""

    def __init__(self, transformer: nn.Module, mask_style: MaskStyle) -> None:
        super().__init__()
        self.transformer: Any = transformer
        self.mask_style = mask_style
        self.packs = False
        """Whether it can read rows of several sessions; `can_pack` tests this on its outputs."""

    def forward(self, inputs: Vectors, is_event: EventMask) -> Vectors:
        """Run the model; padding is never attended to."""
        if inputs.is_cuda and self.transformer.config._attn_implementation == "sdpa":
            is_masked = self.mask_style == "padding" or _has_window(self.transformer.config)
            self.transformer.set_attn_implementation(MASKED if is_masked else UNMASKED)
        with _attention_kernel(inputs):
            masks = self._masks(inputs, is_event)
            hidden: Tensor = self.transformer(inputs_embeds=inputs, **masks)[0]
        if hidden.shape[-1] == 2 * inputs.shape[-1]:  # Reformer's two reversible streams
            hidden = torch.stack(hidden.chunk(2, dim=-1)).mean(0)
        return hidden

    def packs_on(self, device: torch.device) -> bool:
        """Whether to pack sessions: in training on a CPU; a GPU's fast kernels take no mask."""
        return self.packs and self.training and device.type == "cpu"

    def forward_packed(
        self, rows: Float[Tensor, "R W D"], packed: PackedSessions
    ) -> Float[Tensor, "R W D"]:
        """Run the model on rows of several sessions; states at padding are arbitrary."""
        is_blocked = packed.is_other
        if self.mask_style != "padding":
            is_blocked = is_blocked | torch.ones_like(is_blocked[0]).triu(1)
        masks = self._pair_masks(is_blocked, rows.dtype)
        if not self._is_xlnet:  # XLNet's positions are relative
            masks["position_ids"] = packed.steps
        with _attention_kernel(rows):
            states: Tensor = self.transformer(inputs_embeds=rows, **masks)[0]
        return states

    @property
    def _is_xlnet(self) -> bool:
        return bool(self.transformer.config.model_type == "xlnet")

    def _masks(self, inputs: Vectors, is_event: EventMask) -> dict[str, Tensor]:
        if self.mask_style == "none":
            return {}
        if self.mask_style == "padding":
            return {"attention_mask": is_event.to(inputs.dtype)}
        steps = torch.arange(inputs.shape[1], device=inputs.device)
        # Not len(inputs): torch.export traces a length as a constant.
        is_later = (steps > steps[:, None]).expand(inputs.shape[0], -1, -1)
        return self._pair_masks(is_later, inputs.dtype)

    def _pair_masks(
        self, is_blocked: Bool[Tensor, "B L L"], dtype: torch.dtype
    ) -> dict[str, Tensor]:
        """Mask the events [b, j] that an event [b, i] must not see."""
        if self._is_xlnet:
            return {"perm_mask": is_blocked.to(dtype)}
        return {"attention_mask": is_blocked[:, None].to(dtype) * torch.finfo(dtype).min}

    def query_stream(
        self,
        inputs: Vectors,
        is_event: EventMask,
        is_hidden: Bool[Tensor, "B L L"],
        positions: Int[Tensor, "B T"],
    ) -> Float[Tensor, "B T D"]:
        """XLNet's query stream, which knows positions but not their events.

        A separator that all see precedes the session, as [SEP] and [CLS] do in Yang et al. 2019:
        with only one key, softmax attention would be 1 whatever its relative position.
        """
        separator = self.transformer.get_input_embeddings().weight  # [1, D], otherwise unused
        separated = torch.cat([separator.expand(inputs.shape[0], 1, -1), inputs], dim=1)
        is_hidden = nn.functional.pad(is_hidden, (1, 0, 1, 0))
        is_hidden[:, 0, 1:] = True  # else the separator would pass information between events
        steps = torch.arange(separated.shape[1], device=inputs.device)
        target_mapping = (positions + 1)[..., None] == steps
        hidden: Tensor = self.transformer(
            inputs_embeds=separated,
            attention_mask=nn.functional.pad(is_event, (1, 0), value=True).to(inputs.dtype),
            perm_mask=is_hidden.to(inputs.dtype),
            target_mapping=target_mapping.to(inputs.dtype),
        ).last_hidden_state
        return hidden

    def attention_weights(self, inputs: Vectors, is_event: EventMask) -> Weights:
        """Empty where the type has none."""
        used = self.transformer.config._attn_implementation
        self.transformer.set_attn_implementation("eager")  # the faster ones return no weights
        masks = self._masks(inputs, is_event)
        try:
            output = self.transformer(inputs_embeds=inputs, output_attentions=True, **masks)
        finally:
            self.transformer.set_attn_implementation(used)
        return list(output.get("attentions") or ())


def _has_window(config: PretrainedConfig) -> bool:
    """Whether some layer attends to a part of the past alone."""
    kinds = set(getattr(config, "layer_types", None) or ())
    return bool(kinds - {"full_attention"}) or any(getattr(config, name, None) for name in WINDOWS)


def _attention_kernel(inputs: Vectors) -> AbstractContextManager[None]:
    """The fastest kernel of SDPA: on a CPU, at some lengths, the plain one.

    The fused one takes two to ten times as long there: in bfloat16 backward, and in float32 from 12
    events on, with MKL on an AMD CPU. Beyond those lengths it is the faster one, and the plain one
    would hold the weights of all pairs of events.
    """
    is_bfloat16 = torch.is_autocast_enabled(inputs.device.type)
    lengths = PLAIN_LENGTHS[torch.bfloat16 if is_bfloat16 else torch.float32]
    if inputs.device.type == "cpu" and inputs.shape[1] in lengths:
        plain: AbstractContextManager[None] = sdpa_kernel(SDPBackend.MATH)
        return plain
    return nullcontext()


def huggingface_backbones(
    config: ModelConfig, *, causal: bool, max_length: int
) -> Iterator[HuggingFaceBackbone]:
    """Build the model type once for each mask style that may give the attention needed.

    Raises:
        ConfigError: the type does not support our sizes, or model.config does not fit it.
        BUILD_ERRORS: transformers cannot build it, or it does not read vectors.
    """
    hf_config = _hf_config(config, causal, max_length)
    styles: tuple[MaskStyle, ...] = ("none", "square") if causal else ("padding",)
    if causal and config.architecture == "xlnet":
        styles = ("square",)
    for style in styles:
        yield HuggingFaceBackbone(_transformer(hf_config, causal), style)


def _transformer(hf_config: PretrainedConfig, causal: bool) -> nn.Module:
    """A model of random weights; AutoModel uses SDPA where the type supports it."""
    supported = inspect.signature(_model_class(hf_config).__init__).parameters
    extras = {"add_pooling_layer": False} if "add_pooling_layer" in supported else {}
    model = AutoModel.from_config(hf_config, **extras)
    # One half has the attention needed: decoders are causal, encoders are not.
    if hf_config.is_encoder_decoder:
        model = model.get_decoder() if causal else model.get_encoder()
    if hf_config.model_type == "xlnet":
        model.relative_positional_encoding = _one_for_all(model.relative_positional_encoding)
    # No ids are read, except for Longformer's padding.
    model.get_input_embeddings().requires_grad_(False)
    transformer: nn.Module = model
    return transformer


def _one_for_all(encoding: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Make XLNet's positions [2 L, 1, D], as in Transformer-XL (Dai et al. 2019).

    transformers projects a copy for each session, each with its own dropout, which takes a sixth of
    a training step.
    """

    def shared(qlen: int, klen: int, bsz: int, device: torch.device) -> Tensor:
        return encoding(qlen, klen, device=device)

    return shared


def _model_class(hf_config: PretrainedConfig) -> Any:  # noqa: ANN401
    found = MODEL_MAPPING[type(hf_config)]
    return found[0] if isinstance(found, tuple) else found


def _hf_config(config: ModelConfig, causal: bool, max_length: int) -> PretrainedConfig:
    name = config.architecture
    cls = CONFIG_MAPPING[name]
    if cls.sub_configs:
        types = [getattr(part, "model_type", "") for part in cls.sub_configs.values()]
        parts = " or ".join(part for part in types if part in CONFIG_MAPPING)
        raise ConfigError(
            f"{config.setting}: {name} is made of several models; name a single one"
            f"{f' ({parts})' if parts else ''}"
        )
    defaults = {f.name: f.default for f in dataclasses.fields(cls)}
    _check_overrides(config, cls, defaults)
    sizes = {
        "hidden_size": config.d_model,
        "num_hidden_layers": config.n_layer,
        "num_attention_heads": config.n_head,
        "num_key_value_heads": config.n_head,
        "head_dim": config.d_model // config.n_head,
        "intermediate_size": 4 * config.d_model,
        "max_position_embeddings": max_length + OFFSET,
        "initializer_range": config.init_std,
    }
    values = {
        **{name: value for size, value in sizes.items() for name in _names(cls, size)},
        **_general_values(config, defaults, causal),
        **_special_values(config, max_length),
    }
    own = {name: values[name] for name in defaults if name in values}
    if config.dropout and not any(DROPOUT.match(name) and value for name, value in own.items()):
        raise ConfigError(
            f"model.dropout: {name} has none; set it to 0 (model.input_dropout applies before it)"
        )
    made = cls(**own | config.config)
    # Sizes under names that the type does not have were left out above: check that all arrived.
    if (made.hidden_size, made.num_hidden_layers) != (config.d_model, config.n_layer):
        raise ValueError("its configuration has no known fields for width, layers and heads")
    if "inputs_embeds" not in inspect.signature(_model_class(made).forward).parameters:
        raise ValueError("it reads ids, images or sound, not vectors (inputs_embeds)")
    return made


def _names(cls: type[PretrainedConfig], field: str) -> set[str]:
    """A standard field, what the type maps it to, and further fields of the same meaning."""
    return {field, cls.attribute_map.get(field, field), *FURTHER_NAMES.get(field, "").split()}


def _check_overrides(
    config: ModelConfig, cls: type[PretrainedConfig], defaults: dict[str, Any]
) -> None:
    """Check model.config, and that heads divide the width where there are heads."""
    name, heads = config.architecture, _names(cls, "num_attention_heads")
    if config.d_model % config.n_head and not heads.isdisjoint(defaults):
        raise ConfigError(
            f"model.d_model ({config.d_model}) must be a multiple of model.n_head "
            f"({config.n_head}) with {name}"
        )
    reserved = heads | _names(cls, "hidden_size") | _names(cls, "num_hidden_layers")
    reserved |= {"vocab_size", "use_cache", "is_decoder", "causal"}
    general = {f.name for f in dataclasses.fields(PretrainedConfig)}
    known = sorted(defaults.keys() - general - reserved)
    for field in config.config:
        if field in reserved:
            raise ConfigError(
                f"model.config.{field}: follows from the other settings; set model.d_model, "
                f"model.n_layer, model.n_head or task.name instead"
            )
        if field not in known:
            close = did_you_mean(field, known, most=1)
            raise ConfigError(
                f"model.config.{field}: {name} has no such field"
                f"{f' ({close})' if close else ''}; known are {', '.join(known)}"
            )


def _general_values(config: ModelConfig, defaults: dict[str, Any], causal: bool) -> dict[str, Any]:
    """Dropouts, activations, ids and attention, by the names and defaults of the type's fields."""
    # The smallest word table, as no ids are read.
    values: dict[str, Any] = {"vocab_size": 1, "use_cache": False}
    if not defaults.get("is_encoder_decoder"):
        values |= {"is_decoder": causal, "causal": causal}
    for name, default in defaults.items():
        if DROPOUT.match(name) and type(default) in (float, int):
            # LayerDrop, which skips whole layers, stays off.
            values[name] = 0.0 if "layer" in name else config.dropout
        elif default == "gelu_new":
            # The same function, but written out in Python: four times the step on a CPU.
            values[name] = "gelu_pytorch_tanh"
        elif name.endswith("_token_id"):
            values[name] = 0
    return values


def _special_values(config: ModelConfig, max_length: int) -> dict[str, Any]:
    head_dim = config.d_model // config.n_head
    # Longformer's windows cover half their size on either side; inputs are padded to whole windows.
    window = 2 * max_length
    # A chunk of Reformer holds a whole session: attention is exact and nothing is hashed.
    chunks = {"local_attn_chunk_length": max_length, "lsh_attn_chunk_length": max_length}
    layers = (("local", "lsh") * config.n_layer)[: config.n_layer]
    special: dict[str, dict[str, Any]] = {
        "gpt2": {"activation_function": "gelu"},
        "gpt_neo": {"attention_types": [[["global"], config.n_layer]]},
        "gptj": {"rotary_dim": head_dim},
        "longformer": {"attention_window": window, "max_position_embeddings": window + OFFSET},
        "mamba2": {"expand": 2, "head_dim": 2 * config.d_model // config.n_head, "n_groups": 1},
        "mpnet": {"vocab_size": 2},
        "reformer": {"attn_layers": layers, "axial_pos_embds": False, **chunks},
        "xlnet": {"use_mems_eval": False},
    }
    return special.get(config.architecture, {})
