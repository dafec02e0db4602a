"""Bodies from the zoo: what they refuse, what they freeze, whom they attend to."""

import pytest
import torch

from dayahead.errors import ConfigError
from dayahead.model.body import CONFIGS, Body
from tiny_settings import BODIES, every_body, model_config


def body_of(architecture, task, **changes):
    torch.manual_seed(0)
    config = model_config(architecture=architecture, **changes)
    return Body(config, causal=task == "clm", max_length=6).eval()


def inputs_of(n_sessions=3, seed=0):
    return torch.randn(n_sessions, 6, 16, generator=torch.Generator().manual_seed(seed))


def test_gpt2_cannot_look_both_ways():
    with pytest.raises(ConfigError, match=r"gpt2.*task\.name to clm or model\.architecture"):
        body_of("gpt2", "mlm")


def test_every_body_of_the_zoo_is_tested():
    assert {architecture for architecture, _ in BODIES} == set(CONFIGS)


@every_body
def test_a_causal_body_sees_no_later_event_the_others_do(architecture, task):
    body, inputs, lengths = body_of(architecture, task), inputs_of(), torch.tensor([6, 6, 6])
    changed = inputs.clone()
    changed[:, 3:] = inputs_of(seed=1)[:, 3:]
    before, after = body(inputs, lengths)[:, :3], body(changed, lengths)[:, :3]
    assert torch.equal(before, after) == (task == "clm")


@every_body
def test_order_matters(architecture, task):
    body, inputs, lengths = body_of(architecture, task), inputs_of(), torch.tensor([6, 6, 6])
    swapped = inputs[:, [1, 0, 2, 3, 4, 5]]
    assert not torch.allclose(body(inputs, lengths)[:, 5], body(swapped, lengths)[:, 5])


@every_body
def test_padding_is_never_attended_to(architecture, task):
    body, inputs, lengths = body_of(architecture, task), inputs_of(), torch.tensor([6, 4, 1])
    changed = torch.where(
        torch.arange(6)[:, None] < lengths[:, None, None], inputs, 100 * inputs_of(seed=1)
    )
    before, after = body(inputs, lengths), body(changed, lengths)
    for row, n in enumerate(lengths.tolist()):
        assert torch.equal(before[row, :n], after[row, :n])


@every_body
def test_an_empty_row_gives_numbers_and_changes_nothing(architecture, task):
    body, inputs = body_of(architecture, task), inputs_of()
    hidden = body(inputs, torch.tensor([6, 4, 0]))
    assert hidden.isfinite().all()
    assert torch.equal(hidden[:2], body(inputs, torch.tensor([6, 4, 3]))[:2])


@every_body
def test_frozen_is_just_what_the_output_does_not_depend_on(architecture, task):
    body, inputs, lengths = body_of(architecture, task), inputs_of(), torch.tensor([6, 4, 1])
    before = body(inputs, lengths)
    for name, parameter in body.named_parameters():
        kept = parameter.detach().clone()
        with torch.no_grad():
            parameter += torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0))
        depends = not torch.equal(before, body(inputs, lengths))
        with torch.no_grad():
            parameter.copy_(kept)
        # A key's bias shifts all scores of a softmax alike: it wants a gradient and gets none.
        if "key.bias" not in name:
            assert depends == parameter.requires_grad, name


@every_body
@pytest.mark.parametrize("n_layer", [1, 3])
def test_depth_is_as_asked(architecture, task, n_layer):
    n_weights = [
        sum(p.numel() for p in body_of(architecture, task, n_layer=n).parameters())
        for n in (n_layer, n_layer + 1)
    ]
    per_layer = n_weights[1] - n_weights[0]
    assert 11 * 16**2 < per_layer < 14 * 16**2  # four to five d x d for attention, two d x 4d
