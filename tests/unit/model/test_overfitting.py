"""Every task learns twenty sessions by heart."""

import pytest
import torch

from dayahead.model.next_item import NextItemModel
from support.tiny_settings import draws_for, loss_config, model_config, task_config

N_SESSIONS, LENGTH, N_STEPS = 20, 5, 300
CASES = [
    ("gpt2", "clm", {}),
    ("bert", "mlm", {}),
    ("xlnet", "plm", {}),
    ("xlnet", "rtd", {}),
    ("electra", "rtd", {"rtd_replacements": "catalogue"}),
    ("bert", "rtd", {"rtd_tied_generator": False}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("architecture", "task", "changes"), CASES)
def test_twenty_sessions_are_learned_by_heart(architecture, task, changes):
    """The first item tells each; the last is asked for and nowhere else a hint."""
    model = NextItemModel(
        model_config(architecture=architecture, d_model=32, n_layer=1, init_std=0.05),
        task_config(name=task, **changes),
        loss_config(),
        categoricals={},
        numbers={},
        max_length=LENGTH,
        seed=1,
    )
    noise = torch.Generator().manual_seed(0)
    n_items = 40
    model.grow({"item_id": n_items})
    items = torch.randint(22, 42, (N_SESSIONS, LENGTH), generator=noise)
    items[:, 0] = torch.arange(2, 22)
    lengths = torch.full((N_SESSIONS,), LENGTH)
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.01)
    fade = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.01, N_STEPS)
    for step in range(N_STEPS):
        loss, n_targets = model({"item_id": items}, lengths, draws_for(items, step))
        optimizer.zero_grad()
        (loss / n_targets).backward()
        optimizer.step()
        fade.step()
    scores = model.scorer(torch.arange(2, 2 + n_items))({"item_id": items}, lengths - 1)
    assert (scores.argmax(1) + 2 == items[:, -1]).all()
