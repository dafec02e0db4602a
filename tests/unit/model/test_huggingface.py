"""Any transformers type: our sizes by its field names, its own fields, validation errors."""

import pytest
import torch
from torch.profiler import profile
from transformers import GPT2Config, GPT2Model, XLNetModel

from dayahead.core.errors import ConfigError
from dayahead.model import huggingface
from dayahead.model.backbones import Backbone
from support.tiny_settings import model_config


def backbone_of(architecture, *, causal=None, **changes):
    torch.manual_seed(0)
    causal = architecture != "longformer" if causal is None else causal
    config = model_config(architecture=architecture, **changes)
    return Backbone(config, "causal" if causal else "bidirectional", max_length=6)


def error_of(architecture, **changes):
    with pytest.raises(ConfigError) as error:
        backbone_of(architecture, **changes)
    return str(error.value)


def n_weights(backbone):
    return sum(parameter.numel() for parameter in backbone.parameters())


def test_albert_shares_its_layer_by_default():
    shared = [backbone_of("albert", n_layer=n) for n in (1, 2)]
    assert n_weights(shared[0]) == n_weights(shared[1])
    inputs, lengths = torch.randn(1, 6, 16), torch.tensor([6])
    once, twice = (backbone.eval()(inputs, lengths) for backbone in shared)
    assert not torch.allclose(once, twice)
    own = backbone_of("albert", n_layer=2, config={"num_hidden_groups": 2})
    assert n_weights(own) > n_weights(shared[1])


@pytest.mark.parametrize("architecture", ["gpt2", "bert", "electra", "distilbert", "opt"])
def test_a_layer_has_four_attention_matrices_and_an_inner_width_of_four(architecture):
    per_layer = n_weights(backbone_of(architecture, n_layer=2))
    per_layer -= n_weights(backbone_of(architecture))
    vectors = 13 * 16  # biases and two norms
    assert per_layer == 4 * 16**2 + 2 * 16 * 64 + vectors


@pytest.mark.parametrize("architecture", ["mamba", "avg"])
def test_dropout_is_rejected_where_there_is_none(architecture):
    assert "model.dropout" in error_of(architecture, dropout=0.1)


@pytest.mark.parametrize("architecture", ["gpt2", "bert", "xlnet", "llama", "mpnet"])
def test_init_std_is_that_of_the_matrices(architecture):
    backbone = backbone_of(architecture, d_model=64, init_std=0.005)
    matrices = [p for p in backbone.parameters() if p.dim() == 2 and min(p.shape) >= 64]
    stds = torch.stack([matrix.std() for matrix in matrices])
    assert stds.max() < 0.006
    assert stds.median() > 0.003  # gpt2 initialises those into the residual stream smaller


def test_the_model_is_that_of_transformers():
    """Same weights, same numbers as transformers called directly."""
    backbone = backbone_of("gpt2").eval()
    own = GPT2Config(
        vocab_size=1, n_positions=8, n_embd=16, n_layer=1, n_head=2, activation_function="gelu"
    )
    reference = GPT2Model(own).eval()
    reference.load_state_dict(backbone.network.transformer.state_dict())
    inputs = torch.randn(2, 6, 16)
    wanted = reference(inputs_embeds=inputs).last_hidden_state
    torch.testing.assert_close(backbone(inputs, torch.tensor([6, 6])), wanted)


@torch.no_grad()
@pytest.mark.parametrize("causal", [False, True])
def test_xlnet_projects_positions_once_and_is_that_of_transformers(causal):
    backbone = backbone_of("xlnet", causal=causal, n_layer=2).eval()
    transformer = backbone.network.transformer
    reference = XLNetModel(transformer.config).eval()
    reference.load_state_dict(transformer.state_dict())
    assert transformer.relative_positional_encoding(6, 6, bsz=3, device=None).shape[1] == 1
    inputs, lengths = torch.randn(3, 6, 16), torch.tensor([6, 2, 4])
    found = backbone(inputs, lengths)
    backbone.network.transformer = reference
    torch.testing.assert_close(found, backbone(inputs, lengths))


def test_fused_attention_where_the_type_supports_it():
    for architecture, used in [("gpt2", "sdpa"), ("bert", "sdpa"), ("xlnet", "eager")]:
        config = backbone_of(architecture).network.transformer.config
        assert config._attn_implementation == used


@pytest.mark.parametrize("architecture", ["gpt2", "bert"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 0.01), (torch.float32, 1e-5)])
def test_a_cpu_uses_the_plain_kernel_at_some_lengths(monkeypatch, architecture, dtype, tolerance):
    """With the same outputs and gradients but for rounding, in bfloat16 about .004 of a number."""
    backbone = backbone_of(architecture, causal=architecture == "gpt2")
    inputs, weights = torch.randn(2, 2, 6, 16).unbind()
    inputs.requires_grad_()
    found = []
    for lengths, is_fused in [(range(6, 7), False), (range(6), True)]:
        monkeypatch.setitem(huggingface.PLAIN_LENGTHS, dtype, lengths)
        is_bfloat16 = dtype == torch.bfloat16
        with profile() as record, torch.autocast("cpu", torch.bfloat16, enabled=is_bfloat16):
            output = backbone(inputs, torch.tensor([6, 4]))
        assert any("flash" in event.key for event in record.key_averages()) == is_fused
        [gradient] = torch.autograd.grad((weights * output).sum(), [inputs])
        found.append((output, gradient))
    for plain, fused in zip(*found, strict=True):
        assert (plain - fused).norm() <= tolerance * fused.norm()


def test_model_config_fields_are_passed_on():
    plain, grouped = (
        n_weights(backbone_of("llama", config=config))
        for config in ({}, {"num_key_value_heads": 1})
    )
    assert plain - grouped == 2 * 16 * 8  # a key's and a value's matrix for the second head
    assert backbone_of("gpt2", config={"activation_function": "relu"})


def test_an_unknown_field_is_rejected_with_the_known_ones():
    error = error_of("bert", config={"hiden_act": "relu"})
    assert "model.config.hiden_act: bert has no such field" in error
    assert "did you mean hidden_act?" in error
    assert "intermediate_size" in error
    assert "output_hidden_states" not in error


@pytest.mark.parametrize(
    ("architecture", "field"),
    [
        ("gpt2", "n_layer"),
        ("gpt2", "num_hidden_layers"),
        ("bert", "hidden_size"),
        ("bert", "is_decoder"),
        ("llama", "num_attention_heads"),
        ("llama", "use_cache"),
    ],
)
def test_fields_that_follow_from_other_settings_are_rejected(architecture, field):
    error = error_of(architecture, config={field: 3})
    assert f"model.config.{field}: follows from the other settings" in error


@pytest.mark.parametrize("value", ["many", -1, None])
def test_a_field_with_an_invalid_value_is_rejected(value):
    error = error_of("bert", config={"intermediate_size": value})
    assert "bert cannot be built" in error
    assert "intermediate_size" in error


@pytest.mark.parametrize("architecture", ["gru", "avg", "ligr"])
def test_model_config_is_rejected_where_there_are_no_fields(architecture):
    assert "model.config" in error_of(architecture, config={"hidden_act": "relu"})


def test_the_width_is_a_multiple_of_the_heads_where_there_are_heads():
    error = error_of("gpt2", d_model=18, n_head=4)
    assert "model.d_model (18) must be a multiple of model.n_head (4)" in error
    assert "model.d_model must be a multiple of model.n_head" in error_of(
        "ligr", d_model=18, n_head=4
    )
    assert backbone_of("gru", d_model=18, n_head=4)
    assert backbone_of("mamba", d_model=18, n_head=4)


@pytest.mark.parametrize(
    ("architecture", "reason"),
    [
        ("gemma3", "is made of several models; name a single one (gemma3_text)"),
        ("whisper", "not vectors (inputs_embeds)"),
        ("vit", "not vectors (inputs_embeds)"),
        ("funnel", "no known fields for width, layers and heads"),
        ("fnet", "it attends to padding"),
        ("layoutlmv2", "cannot be built"),
    ],
)
def test_unsupported_types_are_rejected_with_the_reason(architecture, reason):
    assert reason in error_of(architecture, causal=False)


def test_causal_tasks_use_the_decoder_and_others_the_encoder():
    for architecture in ("t5", "bart"):
        decoder = type(backbone_of(architecture, causal=True).network.transformer).__name__
        encoder = backbone_of(architecture, causal=False).network.transformer
        assert decoder in ("T5Stack", "BartDecoder")
        assert type(encoder).__name__ in ("T5Stack", "BartEncoder")
        assert not getattr(encoder, "is_decoder", False)
