"""Sequence bodies from the transformers zoo, fed with embeddings of our own."""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import AutoModel, BertConfig, GPT2Config, PretrainedConfig, XLNetConfig

from dayahead.config.params import ModelConfig
from dayahead.errors import ConfigError


class Body(nn.Module):
    """A transformer that reads [B, L, D] and writes [B, L, D], padding masked.

    With `causal` no position sees a later one.
    """

    def __init__(self, config: ModelConfig, *, causal: bool, max_length: int) -> None:
        super().__init__()
        zoo_config = CONFIGS[config.architecture](config, causal, max_length)
        self.transformer = AutoModel.from_config(zoo_config, **EXTRAS.get(config.architecture, {}))
        # XLNet's own attn_type="uni" fails beside a padding mask (transformers 5.23), a
        # permutation mask says the same.
        self.by_permutation_mask = causal and config.architecture == "xlnet"
        self._freeze_unreached(config.d_model)

    def forward(
        self, inputs: Float[Tensor, "B L D"], lengths: Int[Tensor, " B"]
    ) -> Float[Tensor, "B L D"]:
        """Run the body; what stands behind a session's length is never attended to."""
        n_steps = inputs.shape[1]
        steps = torch.arange(n_steps, device=inputs.device)
        # An empty row attends to its first position, for a softmax over nothing is not a number.
        is_event = steps < lengths.clamp(min=1)[:, None]  # [B, L]
        masks = {"attention_mask": is_event.to(inputs.dtype)}
        if self.by_permutation_mask:
            is_later = steps > steps[:, None]  # [L, L]
            masks["perm_mask"] = is_later.to(inputs.dtype).expand(len(inputs), -1, -1)
        hidden: Tensor = self.transformer(inputs_embeds=inputs, **masks).last_hidden_state
        return hidden

    def _freeze_unreached(self, d_model: int) -> None:
        """Freeze what `inputs_embeds` never reaches (word tables, XLNet's mask and segments).

        DDP waits for the gradient of every parameter that wants one.
        """
        probe = self(torch.ones(1, 2, d_model), torch.tensor([2]))
        probe.sum().backward()
        for parameter in self.parameters():
            parameter.requires_grad_(parameter.grad is not None)
            parameter.grad = None


def _gpt2(config: ModelConfig, causal: bool, max_length: int) -> PretrainedConfig:
    if not causal:
        raise ConfigError(
            "model.architecture: gpt2 sees the past only, and the task looks both ways; set "
            "task.name to clm or model.architecture to bert or xlnet"
        )
    return GPT2Config(
        vocab_size=1,
        bos_token_id=None,
        eos_token_id=None,
        n_positions=max_length,
        n_embd=config.d_model,
        n_layer=config.n_layer,
        n_head=config.n_head,
        # gelu_new, GPT-2's own, is written out in Python and takes four times the step on a CPU.
        activation_function="gelu",
        resid_pdrop=config.dropout,
        embd_pdrop=config.dropout,
        attn_pdrop=config.dropout,
        initializer_range=config.init_std,
        use_cache=False,
    )


def _bert(config: ModelConfig, causal: bool, max_length: int) -> PretrainedConfig:
    return BertConfig(
        vocab_size=1,
        pad_token_id=None,
        is_decoder=causal,
        max_position_embeddings=max_length,
        hidden_size=config.d_model,
        num_hidden_layers=config.n_layer,
        num_attention_heads=config.n_head,
        intermediate_size=4 * config.d_model,
        hidden_dropout_prob=config.dropout,
        attention_probs_dropout_prob=config.dropout,
        initializer_range=config.init_std,
        use_cache=False,
    )


def _xlnet(config: ModelConfig, causal: bool, max_length: int) -> PretrainedConfig:
    return XLNetConfig(
        vocab_size=1,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
        attn_type="bi",
        d_model=config.d_model,
        n_layer=config.n_layer,
        n_head=config.n_head,
        d_inner=4 * config.d_model,
        dropout=config.dropout,
        initializer_range=config.init_std,
        use_mems_train=False,
        use_mems_eval=False,
    )


CONFIGS: dict[str, Callable[[ModelConfig, bool, int], PretrainedConfig]] = {
    "gpt2": _gpt2,
    "bert": _bert,
    "xlnet": _xlnet,
}
EXTRAS: dict[str, dict[str, Any]] = {"bert": {"add_pooling_layer": False}}
