"""Any model type of the zoo: our sizes under its names, its own fields, and plain refusals."""

import pytest
import torch
from transformers import GPT2Config, GPT2Model

from dayahead.core.errors import ConfigError
from dayahead.model.backbones import Body
from support.bodies import NAMED, OF_THE_ZOO, the_rest_slow
from support.tiny_settings import model_config

ZOO = [name for name in (*NAMED, *OF_THE_ZOO) if name not in ("gru", "lstm", "rnn", "avg")]
WITHOUT_DROPOUT = ("mamba",)


def body_of(architecture, *, causal=None, **changes):
    torch.manual_seed(0)
    causal = architecture != "longformer" if causal is None else causal
    return Body(model_config(architecture=architecture, **changes), causal=causal, max_length=6)


def refusal(architecture, **changes):
    with pytest.raises(ConfigError) as refused:
        body_of(architecture, **changes)
    return str(refused.value)


def n_weights(body):
    return sum(parameter.numel() for parameter in body.parameters())


@pytest.mark.parametrize("architecture", the_rest_slow(name for name in ZOO if name != "albert"))
def test_every_two_layers_add_the_same_weights(architecture):
    """Two, for Reformer takes turns between two kinds."""
    one, three, five = (n_weights(body_of(architecture, n_layer=n)) for n in (1, 3, 5))
    assert five - three == three - one > 2 * 16**2


def test_albert_shares_its_layer_unless_told_otherwise():
    shared = [body_of("albert", n_layer=n) for n in (1, 2)]
    assert n_weights(shared[0]) == n_weights(shared[1])
    inputs, lengths = torch.randn(1, 6, 16), torch.tensor([6])
    once, twice = (body.eval()(inputs, lengths) for body in shared)
    assert not torch.allclose(once, twice)
    own = body_of("albert", n_layer=2, config={"num_hidden_groups": 2})
    assert n_weights(own) > n_weights(shared[1])


@pytest.mark.parametrize("architecture", ["gpt2", "bert", "electra", "distilbert", "opt"])
def test_a_layer_has_four_matrices_of_attention_and_an_inner_width_of_four(architecture):
    per_layer = n_weights(body_of(architecture, n_layer=2)) - n_weights(body_of(architecture))
    vectors = 13 * 16  # biases and two norms
    assert per_layer == 4 * 16**2 + 2 * 16 * 64 + vectors


@pytest.mark.parametrize(
    "architecture", the_rest_slow(name for name in ZOO if name not in WITHOUT_DROPOUT)
)
def test_dropout_works_in_training_alone(architecture):
    body = body_of(architecture, dropout=0.5)
    inputs, lengths = torch.randn(2, 6, 16), torch.tensor([6, 6])
    assert not torch.equal(body.train()(inputs, lengths), body(inputs, lengths))
    assert torch.equal(body.eval()(inputs, lengths), body(inputs, lengths))


@pytest.mark.parametrize("architecture", the_rest_slow(ZOO))
def test_without_dropout_training_computes_what_measuring_does(architecture):
    body = body_of(architecture)
    inputs, lengths = torch.randn(2, 6, 16), torch.tensor([6, 3])
    trained, evaluated = body.train()(inputs, lengths), body.eval()(inputs, lengths)
    assert torch.allclose(trained[1, :3], evaluated[1, :3], atol=1e-6)


@pytest.mark.parametrize("architecture", ["mamba", "avg"])
def test_dropout_is_refused_where_there_is_none(architecture):
    assert "model.dropout" in refusal(architecture, dropout=0.1)


@pytest.mark.parametrize("architecture", ["gpt2", "bert", "xlnet", "llama", "mpnet"])
def test_init_std_is_that_of_the_matrices(architecture):
    body = body_of(architecture, d_model=64, init_std=0.005)
    matrices = [p for p in body.parameters() if p.dim() == 2 and min(p.shape) >= 64]
    spreads = torch.stack([matrix.std() for matrix in matrices])
    assert spreads.max() < 0.006
    assert spreads.median() > 0.003  # gpt2 makes those into the residual stream smaller


def test_the_model_is_the_zoos():
    """Same weights, same numbers as transformers called by hand."""
    body = body_of("gpt2").eval()
    own = GPT2Config(
        vocab_size=1, n_positions=8, n_embd=16, n_layer=1, n_head=2, activation_function="gelu"
    )
    peer = GPT2Model(own).eval()
    peer.load_state_dict(body.network.transformer.state_dict())
    inputs = torch.randn(2, 6, 16)
    wanted = peer(inputs_embeds=inputs).last_hidden_state
    torch.testing.assert_close(body(inputs, torch.tensor([6, 6])), wanted)


def test_fused_attention_where_the_type_offers_it():
    for architecture, used in [("gpt2", "sdpa"), ("bert", "sdpa"), ("xlnet", "eager")]:
        config = body_of(architecture).network.transformer.config
        assert config._attn_implementation == used


def test_further_fields_are_passed_on():
    plain, grouped = (
        n_weights(body_of("llama", config=config)) for config in ({}, {"num_key_value_heads": 1})
    )
    assert plain - grouped == 2 * 16 * 8  # a key's and a value's matrix for the second head
    assert body_of("gpt2", config={"activation_function": "relu"})


def test_an_unknown_field_is_refused_with_the_known_ones():
    told = refusal("bert", config={"hiden_act": "relu"})
    assert "model.config.hiden_act: bert has no such field" in told
    assert "did you mean hidden_act?" in told
    assert "intermediate_size" in told
    assert "output_hidden_states" not in told


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
def test_what_other_settings_say_is_refused(architecture, field):
    told = refusal(architecture, config={field: 3})
    assert f"model.config.{field}: follows from the other settings" in told


@pytest.mark.parametrize("value", ["many", -1, None])
def test_a_field_of_a_wrong_value_is_refused(value):
    told = refusal("bert", config={"intermediate_size": value})
    assert "bert cannot be built" in told
    assert "intermediate_size" in told


@pytest.mark.parametrize("architecture", ["gru", "avg"])
def test_further_fields_are_refused_where_there_are_none(architecture):
    assert "model.config" in refusal(architecture, config={"hidden_act": "relu"})


def test_heads_share_the_width_evenly_where_there_are_heads():
    told = refusal("gpt2", d_model=18, n_head=4)
    assert "model.d_model (18) must be a multiple of model.n_head (4)" in told
    assert body_of("gru", d_model=18, n_head=4)
    assert body_of("mamba", d_model=18, n_head=4)


def test_an_unknown_name_is_refused_with_those_that_are_known():
    told = refusal("gtp2")
    assert "gtp2 is unknown" in told
    assert "did you mean" in told
    for name in (*NAMED, "popularity", "transitions", "any model type of transformers"):
        assert name in told


@pytest.mark.parametrize("name", ["transfo-xl", "transfoxl", "transfo_xl", "Transformer-XL"])
def test_transformer_xl_is_retired_and_its_heir_named(name):
    told = refusal(name)
    assert "left transformers in version 5" in told
    assert "xlnet with task.name: clm" in told


@pytest.mark.parametrize(
    ("architecture", "reason"),
    [
        ("gemma3", "is made of several models; name a single one (gemma3_text)"),
        ("whisper", "no vectors (inputs_embeds)"),
        ("vit", "no vectors (inputs_embeds)"),
        ("funnel", "its sizes have names that are not known"),
        ("fnet", "it attends to padding"),
        ("layoutlmv2", "cannot be built"),
    ],
)
def test_types_that_cannot_be_bodies_are_refused_with_the_reason(architecture, reason):
    assert reason in refusal(architecture, causal=False)


def test_encoder_or_decoder_of_the_two_is_taken_as_the_task_wants():
    for architecture in ("t5", "bart"):
        decoder = type(body_of(architecture, causal=True).network.transformer).__name__
        encoder = body_of(architecture, causal=False).network.transformer
        assert decoder in ("T5Stack", "BartDecoder")
        assert type(encoder).__name__ in ("T5Stack", "BartEncoder")
        assert not getattr(encoder, "is_decoder", False)
