"""Bodies: whom they attend to, what they freeze, what they refuse; each one by name."""

import re
from functools import lru_cache

import pytest
import torch

from dayahead.core.errors import ConfigError
from dayahead.model.backbones import ATTENTIVE, WITHOUT_ATTENTION, Body
from support.bodies import NAMED, PAIRS, REFUSED, WITHOUT_WEIGHTS, the_rest_slow
from support.tiny_settings import model_config

every_pair = pytest.mark.parametrize(("architecture", "task"), the_rest_slow(PAIRS))
A_SHIFT_OF_ALL_SCORES = re.compile(r"\bk(ey|_proj|_lin)\.bias")
"""A key's bias, which a softmax does not notice: it wants a gradient and gets none."""


def built(architecture, task, **changes):
    torch.manual_seed(0)
    config = model_config(architecture=architecture, **changes)
    return Body(config, causal=task == "clm", max_length=6).eval()


body_of = lru_cache(built)


def inputs_of(n_sessions=3, seed=0):
    return torch.randn(n_sessions, 6, 16, generator=torch.Generator().manual_seed(seed))


def test_every_named_body_is_tested():
    assert set(NAMED) == {*ATTENTIVE, *WITHOUT_ATTENTION}


@every_pair
@pytest.mark.parametrize("split", [1, 3, 5])
def test_a_causal_body_sees_no_later_event_the_others_do(architecture, task, split):
    body, inputs, lengths = body_of(architecture, task), inputs_of(), torch.tensor([6, 6, 6])
    changed = torch.cat([inputs[:, :split], inputs_of(seed=1)[:, split:]], dim=1)
    before, after = body(inputs, lengths)[:, :split], body(changed, lengths)[:, :split]
    if task == "clm":
        assert torch.equal(before, after)
    else:
        assert ((before - after).abs().amax((0, 2)) > 1e-4).all()  # each earlier event saw it


@every_pair
def test_an_event_sees_every_earlier_one(architecture, task):
    body, inputs, lengths = body_of(architecture, task), inputs_of(1), torch.tensor([6])
    for place in range(5):
        changed = inputs.clone()
        changed[:, place] += 1 + inputs_of(1, seed=1)[:, place]
        assert not torch.allclose(body(inputs, lengths)[:, 5], body(changed, lengths)[:, 5])


@pytest.mark.parametrize(
    ("architecture", "task"), the_rest_slow(pair for pair in PAIRS if pair[0] != "avg")
)
def test_order_matters(architecture, task):
    body, inputs, lengths = body_of(architecture, task), inputs_of(), torch.tensor([6, 6, 6])
    swapped = inputs[:, [1, 0, 2, 3, 4, 5]]
    assert not torch.allclose(body(inputs, lengths)[:, 5], body(swapped, lengths)[:, 5])


@every_pair
def test_padding_is_never_attended_to(architecture, task):
    body, inputs, lengths = body_of(architecture, task), inputs_of(), torch.tensor([6, 4, 1])
    changed = torch.where(
        torch.arange(6)[:, None] < lengths[:, None, None], inputs, 100 * inputs_of(seed=1)
    )
    before, after = body(inputs, lengths), body(changed, lengths)
    for row, n in enumerate(lengths.tolist()):
        assert torch.equal(before[row, :n], after[row, :n])


@every_pair
def test_a_session_is_read_alone_as_it_is_among_others(architecture, task):
    body, inputs, lengths = body_of(architecture, task), inputs_of(), torch.tensor([6, 4, 1])
    together = body(inputs, lengths)
    for row, n in enumerate(lengths.tolist()):
        alone = body(inputs[row : row + 1, :n], lengths[row : row + 1])[0]
        torch.testing.assert_close(together[row, :n], alone, rtol=1e-4, atol=1e-5)


@every_pair
def test_an_empty_row_gives_numbers_and_changes_nothing(architecture, task):
    body, inputs = body_of(architecture, task), inputs_of()
    hidden = body(inputs, torch.tensor([6, 4, 0]))
    assert hidden.isfinite().all()
    assert torch.equal(hidden[:2], body(inputs, torch.tensor([6, 4, 3]))[:2])


@every_pair
def test_frozen_is_just_what_the_output_does_not_depend_on(architecture, task):
    body, inputs, lengths = body_of(architecture, task), inputs_of(), torch.tensor([6, 4, 1])
    with torch.no_grad():
        before = body(inputs, lengths)
        for name, parameter in body.named_parameters():
            kept = parameter.clone()
            parameter += torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0))
            depends = not torch.equal(before, body(inputs, lengths))
            parameter.copy_(kept)
            if not A_SHIFT_OF_ALL_SCORES.search(name):
                assert depends == parameter.requires_grad, name


@every_pair
@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_every_step_reaches_what_is_not_frozen(architecture, task, precision):
    """Whatever a process's share is: one event each, or empty rows alone."""
    body = built(architecture, task, dropout=0.0 if architecture in ("avg", "mamba") else 0.1)
    for width, lengths in [(1, [1, 1]), (3, [0, 0]), (6, [6, 2])]:
        inputs = inputs_of(2)[:, :width]
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == torch.bfloat16):
            hidden = body.train()(inputs, torch.tensor(lengths))
        assert hidden.dtype == torch.float32
        if architecture != "avg":
            hidden.square().sum().backward()
        for name, parameter in body.named_parameters():
            assert (parameter.grad is not None) == parameter.requires_grad, name
            assert parameter.grad is None or parameter.grad.isfinite().all(), name
        body.zero_grad(set_to_none=True)


@pytest.mark.parametrize(("architecture", "task", "reason"), REFUSED)
def test_what_cannot_be_seen_as_the_task_wants_is_refused_with_the_reason(
    architecture, task, reason
):
    with pytest.raises(ConfigError, match=rf"model\.architecture: {architecture} .*{reason}"):
        built(architecture, task)


@pytest.mark.parametrize(
    ("architecture", "task", "cure"),
    [
        ("gpt2", "mlm", "set task.name to clm or model.architecture to bert or xlnet"),
        ("gru", "mlm", "set task.name to clm or model.architecture to bert or xlnet"),
        ("longformer", "clm", "set task.name to mlm, or model.architecture to gpt2, xlnet"),
    ],
)
def test_a_refusal_tells_the_cure(architecture, task, cure):
    with pytest.raises(ConfigError, match=re.escape(cure)):
        built(architecture, task)


def test_a_body_whose_sight_depends_on_the_batch_is_refused():
    """Gemma's own field opens both sides only where a batch has no padding (transformers 5.23)."""
    with pytest.raises(ConfigError, match="depends on the others of the batch"):
        built("gemma", "mlm", config={"use_bidirectional_attention": True})


@pytest.mark.parametrize(
    ("architecture", "task"),
    the_rest_slow(pair for pair in PAIRS if pair[0] not in WITHOUT_WEIGHTS),
)
@torch.no_grad()
def test_attention_weights_tell_whom_each_event_attends_to(architecture, task):
    body, inputs, lengths = built(architecture, task, n_layer=2), inputs_of(), [6, 4, 1]
    before = body(inputs, torch.tensor(lengths))
    weights = body.attention_weights(inputs, torch.tensor(lengths))
    assert [layer.shape for layer in weights] == [(3, 2, 6, 6)] * 2
    for layer in weights:
        for row, n in enumerate(lengths):
            own = layer[row, :, :n]
            assert torch.allclose(own.sum(-1), torch.ones(()), atol=1e-5)
            assert (own[..., n:] == 0).all()
            assert (own.triu(1) == 0).all() == (task == "clm" or n == 1)
    assert torch.equal(before, body(inputs, torch.tensor(lengths)))  # as fast as it was


@pytest.mark.parametrize("architecture", WITHOUT_WEIGHTS)
def test_no_weights_are_told_where_there_are_none(architecture):
    task = "mlm" if architecture == "longformer" else "clm"
    with pytest.raises(ConfigError, match=rf"evaluation\.attention_of: {architecture}"):
        body_of(architecture, task).attention_weights(inputs_of(), torch.tensor([6, 6, 6]))


@pytest.mark.parametrize("architecture", ["bert", "gpt2", "gru"])
def test_only_xlnet_has_a_stream_of_queries(architecture):
    config = model_config(architecture=architecture)
    with pytest.raises(ConfigError, match=r"queries.*set model\.architecture to xlnet|past only"):
        Body(config, causal=False, max_length=6, has_queries=True)


@torch.no_grad()
def test_a_query_sees_its_place_and_what_is_not_hidden_from_it():
    config, lengths = model_config(architecture="xlnet"), torch.tensor([6])
    body = Body(config, causal=False, max_length=6, has_queries=True).eval()
    is_hidden = torch.zeros(1, 6, 6).bool()
    is_hidden[:, :, [2, 4]] = True  # two places are asked, no one sees what stands there
    places = torch.tensor([[2, 4]])

    def answers(inputs):
        return body.queried(inputs, lengths, is_hidden, places)

    inputs, changed = inputs_of(1), inputs_of(1)
    changed[:, [2, 4]] = inputs_of(1, seed=1)[:, [2, 4]]
    assert torch.equal(answers(inputs), answers(changed))
    assert not torch.allclose(answers(inputs)[:, 0], answers(inputs)[:, 1])
    changed[:, 3] += 1
    assert not torch.allclose(answers(inputs), answers(changed))
    assert body.network.transformer.mask_emb.requires_grad


@pytest.mark.parametrize("n_layer", [1, 2])
@torch.no_grad()
def test_a_query_knows_on_which_side_of_a_lone_event_it_stands(n_layer):
    """What follows an item is not what it follows; a session's first question is such a one."""
    config, lengths = model_config(architecture="xlnet", n_layer=n_layer), torch.tensor([2])
    body = Body(config, causal=False, max_length=6, has_queries=True).eval()
    event = inputs_of(1)[:, :1].expand(-1, 2, -1)

    def answer(place):
        is_hidden = (torch.arange(2) == place).expand(1, 2, 2)
        return body.queried(event, lengths, is_hidden, torch.tensor([[place]]))

    assert not torch.allclose(answer(0), answer(1))
