"""One window's steps: seeds, schedule, normalisation, and the loss that stops everything."""

import math

import pytest
import torch

from dayahead.core.errors import TrainingError
from dayahead.distributed.process import Process, Rank
from dayahead.model.baselines import CountingModel
from dayahead.model.next_item import NextItemModel
from dayahead.train import trainers as learners
from dayahead.train.batches import MemoryBatches, Sessions, shuffled_rows
from dayahead.train.trainers import CountTrainer, GradientTrainer, uses_bfloat16
from support.tiny_settings import (
    every_backbone,
    loss_config,
    model_config,
    step_random,
    task_config,
    training_config,
)

ALONE = Process(Rank(0, 1), torch.device("cpu"))


def sessions_of(seed=0, n_sessions=21):
    draw = torch.Generator().manual_seed(seed)
    lengths = torch.randint(2, 8, (n_sessions,), generator=draw)
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    return Sessions({"item_id": torch.randint(2, 22, (int(offsets[-1]),), generator=draw)}, offsets)


def epochs_of(n_epochs=2, batch_size=8, rank=ALONE.rank, **kwargs):
    sessions = sessions_of(**kwargs)
    return [
        MemoryBatches(sessions, shuffled_rows(sessions.lengths, batch_size, seed), rank)
        for seed in range(n_epochs)
    ]


def learner_of(architecture="gpt2", task="clm", model=None, **changes):
    built = NextItemModel(
        model_config(architecture=architecture, **(model or {})),
        task_config(name=task),
        loss_config(),
        categoricals={},
        numbers={},
        max_length=8,
        seed=1,
    )
    learner = GradientTrainer(built, training_config(**changes), ALONE)
    learner.grow({"item_id": 20})
    return learner


def weights(learner):
    return {name: tensor.clone() for name, tensor in learner.model.state_dict().items()}


def same(first, second):
    return all(torch.equal(first[name], second[name]) for name in first)


def ignore(n_sessions):
    pass


@every_backbone
def test_the_same_seed_gives_the_same_weights_whatever_was_drawn_before(architecture, task):
    found = []
    for noise in (0, 7):
        torch.manual_seed(noise)
        learner = learner_of(architecture, task, model={"dropout": 0.2, "input_dropout": 0.1})
        torch.rand(noise)
        found.append((learner.fit("2026-01-01", epochs_of(), ignore), weights(learner)))
    assert found[0][0] == found[1][0]
    assert same(found[0][1], found[1][1])


def test_another_seed_or_window_drops_out_other_things():
    runs = []
    for window, seed in (("2026-01-01", 1), ("2026-01-02", 1), ("2026-01-01", 2)):
        learner = learner_of(model={"input_dropout": 0.5}, seed=seed)
        learner.fit(window, epochs_of(), ignore)
        runs.append(weights(learner))
    assert not same(runs[0], runs[1])
    assert not same(runs[0], runs[2])


@every_backbone
def test_the_loss_falls_from_that_of_a_guess(architecture, task):
    learner = learner_of(architecture, task, learning_rate=0.02)
    losses = [learner.fit("w", epochs_of(), ignore) for _ in range(12)]
    assert losses[0] > 0.7 * math.log(20)
    assert losses[-1] < 0.75 * losses[0]


def test_the_loss_told_is_the_mean_per_target_over_all_epochs():
    learner = learner_of(learning_rate=1e-12)
    epochs = epochs_of(n_epochs=2)
    total, n_targets = 0.0, 0
    with torch.no_grad():
        for batch in epochs[0]:
            loss, n = learner.model(
                batch.columns, batch.lengths, step_random(batch.columns["item_id"]), 1
            )
            total, n_targets = total + loss.item(), n_targets + int(n)
    assert n_targets == int(epochs[0].sessions.lengths.sum()) - 21
    assert learner.fit("w", epochs, ignore) == pytest.approx(total / n_targets, rel=1e-5)


@pytest.mark.parametrize("schedule", ["linear", "constant"])
def test_the_rate_restarts_with_each_window(monkeypatch, schedule):
    rates = []
    learner = learner_of(learning_rate=0.6, schedule=schedule)
    step = learner.optimizer.step
    monkeypatch.setattr(
        learner.optimizer,
        "step",
        lambda: (rates.append(learner.optimizer.param_groups[0]["lr"]), step()),
    )
    for window in ("2026-01-01", "2026-01-02"):
        learner.fit(window, epochs_of(n_epochs=2), ignore)  # 2 epochs of 3 steps
    wanted = [0.6, 0.5, 0.4, 0.3, 0.2, 0.1] if schedule == "linear" else [0.6] * 6
    assert rates == pytest.approx(wanted * 2)


def test_the_moments_stay_from_window_to_window():
    learner = learner_of()
    learner.fit("2026-01-01", epochs_of(), ignore)
    learner.grow({"item_id": 25})
    learner.fit("2026-01-02", epochs_of(), ignore)
    assert {int(state["step"]) for state in learner.optimizer.state.values()} == {12}


def test_without_carry_the_moments_start_from_zero_with_each_window():
    learner = learner_of(carry_optimizer=False)
    learner.fit("2026-01-01", epochs_of(), ignore)
    learner.grow({"item_id": 25})
    assert not learner.optimizer.state
    learner.fit("2026-01-02", epochs_of(), ignore)
    assert {int(state["step"]) for state in learner.optimizer.state.values()} == {6}


@pytest.mark.parametrize(("steps", "made"), [(None, 6), (1, 1), (4, 4), (6, 6), (9, 6)])
def test_steps_per_window_cut_the_passes(monkeypatch, steps, made):
    """Two passes of 3 batches are given; a course of the rate ends with the steps."""
    rates, told = [], []
    learner = learner_of(learning_rate=1.0, steps_per_window=steps)
    step = learner.optimizer.step
    monkeypatch.setattr(
        learner.optimizer,
        "step",
        lambda: (rates.append(learner.optimizer.param_groups[0]["lr"]), step()),
    )
    assert learner.n_steps(epochs_of()) == made
    learner.fit("w", epochs_of(), told.append)
    assert rates == pytest.approx([1 - place / made for place in range(made)])
    assert told == [8, 8, 5, 8, 8, 5][:made]


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_loss_that_is_no_number_stops_before_the_update(value):
    learner = learner_of()
    learner.fit("2026-01-01", epochs_of(), ignore)
    with torch.no_grad():
        learner.model.bias[3] = value
    before = weights(learner)
    steps = []
    with pytest.raises(TrainingError, match=r"window 2026-01-02, step 0: the loss is nan"):
        learner.fit("2026-01-02", epochs_of(), steps.append)
    after = weights(learner)
    assert all(torch.equal(after[name], before[name]) for name in after if name != "bias")
    assert steps == []


def test_a_gradient_that_is_no_number_stops_before_the_update():
    learner = learner_of()
    learner.model.inputs.items.weight.register_hook(lambda gradient: gradient * math.nan)
    before = weights(learner)
    with pytest.raises(TrainingError, match="step 0: the gradient norm is nan"):
        learner.fit("2026-01-01", epochs_of(), ignore)
    assert same(weights(learner), before)


def test_the_gradient_is_clipped(monkeypatch):
    learner = learner_of(max_grad_norm=1e-3)
    norms = []
    step = learner.optimizer.step

    def watched():
        gradients = [p.grad for p in learner.model.parameters() if p.grad is not None]
        norms.append(torch.stack([g.norm() for g in gradients]).norm().item())
        step()

    monkeypatch.setattr(learner.optimizer, "step", watched)
    learner.fit("w", epochs_of(), ignore)
    assert len(norms) == 6
    assert max(norms) <= 1.0001e-3


def test_steps_are_told_with_their_sessions():
    told = []
    learner_of().fit("w", epochs_of(n_epochs=2), told.append)
    assert sorted(told) == [5, 5, 8, 8, 8, 8]


def test_bfloat16_comes_close_to_float32():
    losses = [
        learner_of(precision=precision).fit("w", epochs_of(), ignore)
        for precision in ("float32", "bfloat16")
    ]
    assert losses[0] != losses[1]
    assert losses[1] == pytest.approx(losses[0], rel=0.02)


@pytest.mark.parametrize("has", [{}, {"avx512_bf16": True}, {"amx_bf16": True}])
def test_auto_takes_bfloat16_where_the_cpu_multiplies_it(has, monkeypatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: has)
    here = Process(Rank(0, 1), torch.device("cpu"))
    found = [
        uses_bfloat16(training_config(precision=precision), here)
        for precision in ("auto", "bfloat16", "float32")
    ]
    assert found == [any(has.values()), True, False]


@pytest.mark.parametrize("world", [2, 3, 8])
def test_numbers_are_drawn_for_the_global_batch_and_sliced(world):
    """7 rows on 3 processes are 9 with the empty ones; the 7 draw as they would alone."""
    sessions, rows = sessions_of(), torch.arange(7)

    def drawn(batch):
        return learners._step_random(batch, 3).uniform("mask")

    whole = drawn(sessions.gather(rows, Rank(0, 1)))
    for rank in range(world):
        batch = sessions.gather(rows, Rank(rank, world))
        numbers = drawn(batch)
        assert numbers.shape == batch.columns["item_id"].shape
        is_real = batch.sessions >= 0
        assert torch.equal(numbers[is_real], whole[batch.sessions[is_real]])


def test_counting_goes_through_one_epoch_only():
    model = CountingModel(model_config(architecture="transitions"))
    learner = CountTrainer(model)
    learner.grow({"item_id": 20})
    told = []
    assert learner.n_steps(epochs_of(n_epochs=3)) == 3
    assert learner.fit("w", epochs_of(n_epochs=3), told.append) is None
    assert sum(told) == 21
    assert model.popularity.sum() == int(sessions_of().lengths.sum())
