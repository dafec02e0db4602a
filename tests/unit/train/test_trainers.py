"""Trainers: seeds, learning rate, loss, gradient clipping, and errors on non-finite values."""

import math
from contextlib import nullcontext

import pytest
import torch

from dayahead.core.errors import ConfigError, TrainingError
from dayahead.distributed.process import Process, Rank
from dayahead.model.next_item import NextItemModel
from dayahead.train import trainers
from dayahead.train.batches import LoadedBatches, Sessions, shuffled_rows
from dayahead.train.trainers import CountingTrainer, GradientTrainer
from support.tiny_settings import (
    baseline,
    each_task,
    loss_config,
    model_config,
    step_random,
    task_config,
    training_config,
)
from support.user_packages import MODULE

ALONE = Process(Rank(0, 1), torch.device("cpu"))


def sessions_of(seed=0, n_sessions=21):
    draw = torch.Generator().manual_seed(seed)
    lengths = torch.randint(2, 8, (n_sessions,), generator=draw)
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    return Sessions({"item_id": torch.randint(2, 22, (int(offsets[-1]),), generator=draw)}, offsets)


def epochs_of(n_epochs=2, batch_size=8, rank=ALONE.rank, **kwargs):
    sessions = sessions_of(**kwargs)
    return [
        LoadedBatches(sessions, shuffled_rows(sessions.lengths, batch_size, seed), rank)
        for seed in range(n_epochs)
    ]


def trainer_of(architecture="gpt2", task="clm", model=None, loss=None, **changes):
    built = NextItemModel(
        model_config(architecture=architecture, **(model or {})),
        task_config(name=task),
        loss_config(**(loss or {})),
        categoricals={},
        numbers={},
        max_length=8,
        seed=1,
    )
    trainer = GradientTrainer(built, training_config(**changes), ALONE)
    trainer.grow({"item_id": 20})
    return trainer


def noted_steps(trainer, monkeypatch, look):
    """A list to which every step of a trainer's optimizer first appends what `look` sees of it."""
    step, found = trainer.optimizer.step, []

    def noted():
        found.append(look(trainer))
        step()

    monkeypatch.setattr(trainer.optimizer, "step", noted)
    return found


def noted_rates(trainer, monkeypatch):
    """The learning rates of all groups at every step."""

    def rates_of(trainer):
        return [group["lr"] for group in trainer.optimizer.param_groups]

    return noted_steps(trainer, monkeypatch, rates_of)


def weights(trainer):
    return {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()}


def same(first, second):
    return all(torch.equal(first[name], second[name]) for name in first)


def ignore(n_sessions):
    pass


@each_task
def test_the_weights_depend_on_the_seed_but_not_on_the_global_random_state(architecture, task):
    found = []
    for noise in (0, 7):
        torch.manual_seed(noise)
        trainer = trainer_of(architecture, task, model={"dropout": 0.2, "input_dropout": 0.1})
        torch.rand(noise)
        found.append((trainer.fit("2026-01-01", epochs_of(n_epochs=1), ignore), weights(trainer)))
    assert found[0][0] == found[1][0]
    assert same(found[0][1], found[1][1])


def test_dropout_differs_between_seeds_and_windows():
    runs = []
    for window, seed in (("2026-01-01", 1), ("2026-01-02", 1), ("2026-01-01", 2)):
        trainer = trainer_of(model={"input_dropout": 0.5}, seed=seed)
        trainer.fit(window, epochs_of(), ignore)
        runs.append(weights(trainer))
    assert not same(runs[0], runs[1])
    assert not same(runs[0], runs[2])


@each_task
def test_the_loss_falls_from_that_of_a_uniform_guess(architecture, task):
    trainer = trainer_of(architecture, task, learning_rate=0.05)
    losses = [trainer.fit("w", epochs_of(), ignore) for _ in range(5)]
    assert losses[0] > 0.7 * math.log(20)
    assert losses[-1] < 0.75 * losses[0]


def test_the_loss_is_the_mean_per_target_over_all_epochs():
    trainer = trainer_of(learning_rate=1e-12)
    epochs = epochs_of(n_epochs=2)
    total, n_targets = 0.0, 0
    with torch.no_grad():
        for batch in epochs[0]:
            loss, n = trainer.model(
                batch.columns, batch.lengths, step_random(batch.columns["item_id"]), 1
            )
            total, n_targets = total + loss.item(), n_targets + int(n)
    assert n_targets == int(epochs[0].sessions.lengths.sum()) - 21
    assert trainer.fit("w", epochs, ignore) == pytest.approx(total / n_targets, rel=1e-5)


@pytest.mark.parametrize("schedule", ["linear", "constant"])
def test_the_learning_rate_schedule_restarts_with_each_window(monkeypatch, schedule):
    trainer = trainer_of(learning_rate=0.6, schedule=schedule)
    rates = noted_rates(trainer, monkeypatch)
    for window in ("2026-01-01", "2026-01-02"):
        trainer.fit(window, epochs_of(n_epochs=2), ignore)  # 2 epochs of 3 steps
    wanted = [0.6, 0.5, 0.4, 0.3, 0.2, 0.1] if schedule == "linear" else [0.6] * 6
    assert rates == [[pytest.approx(rate)] * 2 for rate in wanted * 2]


@pytest.mark.parametrize(("settings", "n_steps"), [({}, 12), ({"carry_optimizer": False}, 6)])
def test_the_optimizer_state_carries_over_to_the_next_window_or_is_fresh(settings, n_steps):
    trainer = trainer_of(**settings)
    trainer.fit("2026-01-01", epochs_of(), ignore)
    trainer.grow({"item_id": 25})
    assert bool(trainer.optimizer.state) == (settings == {})
    trainer.fit("2026-01-02", epochs_of(), ignore)
    assert {int(state["step"]) for state in trainer.optimizer.state.values()} == {n_steps}


@pytest.mark.parametrize("carry_model", [True, False])
def test_the_state_holds_moments_only_where_the_model_is_carried(carry_model):
    """Two thirds of the disk space of a fit."""
    trainer = trainer_of(protocol="sliding", carry_model=carry_model)
    trainer.fit("2026-01-01", epochs_of(), ignore)
    assert any(name.endswith("exp_avg") for name in trainer.state()) == carry_model


@pytest.mark.parametrize(("steps", "made"), [(None, 6), (1, 1), (4, 4), (6, 6), (9, 6)])
def test_steps_per_window_limit_the_steps(monkeypatch, steps, made):
    """Of two epochs of 3 batches; the learning rate's schedule ends with the steps."""
    trainer, sessions_per_step = trainer_of(learning_rate=1.0, steps_per_window=steps), []
    rates = noted_rates(trainer, monkeypatch)
    assert trainer.n_steps(epochs_of()) == made
    trainer.fit("w", epochs_of(), sessions_per_step.append)
    assert rates == [[pytest.approx(1 - index / made)] * 2 for index in range(made)]
    assert sessions_per_step == [8, 8, 5, 8, 8, 5][:made]


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_non_finite_loss_raises_before_the_update(value):
    trainer = trainer_of()
    trainer.fit("2026-01-01", epochs_of(), ignore)
    with torch.no_grad():
        trainer.model.bias[3] = value
    before = weights(trainer)
    steps = []
    wanted = r"window 2026-01-02, step 0: the loss is nan.*lower training.learning_rate \(0.01\)"
    with pytest.raises(TrainingError, match=wanted):
        trainer.fit("2026-01-02", epochs_of(), steps.append)
    after = weights(trainer)
    assert all(torch.equal(after[name], before[name]) for name in after if name != "bias")
    assert steps == []


def test_a_non_finite_gradient_raises_before_the_update():
    trainer = trainer_of()
    trainer.model.inputs.items.weight.register_hook(lambda gradient: gradient * math.nan)
    before = weights(trainer)
    with pytest.raises(TrainingError, match="step 0: the gradient norm is nan") as raised:
        trainer.fit("2026-01-01", epochs_of(), ignore)
    assert same(weights(trainer), before)
    # No rate has had an effect yet, so none is to blame; float32 and gpt2 are set already.
    assert str(raised.value).endswith(
        "with initial weights: raise model.item_init_std (0.5) or model.init_std (0.2)"
    )


def test_a_loss_of_another_package_is_suspected_first(install):
    points = {"dayahead.losses": {"hinge": f"{MODULE}:hinge"}}
    install("def hinge(scores, config):\n    return (scores.targets - 99).log()\n", points)
    trainer = trainer_of(loss={"name": "hinge", "negatives": 4})
    trainer.model.sampler.set_counts(torch.ones(20, dtype=torch.int64))
    with pytest.raises(TrainingError, match=r"weights: correct loss\.name \(hinge\), or raise"):
        trainer.fit("2026-01-01", epochs_of(), ignore)


def test_the_gradient_is_clipped(monkeypatch):
    trainer = trainer_of(max_grad_norm=1e-3)

    def norm_of(trainer):
        gradients = [p.grad for p in trainer.model.parameters() if p.grad is not None]
        return torch.stack([g.norm() for g in gradients]).norm().item()

    norms = noted_steps(trainer, monkeypatch, norm_of)
    trainer.fit("w", epochs_of(), ignore)
    assert len(norms) == 6
    assert max(norms) <= 1.0001e-3


@pytest.mark.parametrize(
    ("optimizer", "architecture", "task", "model"),
    [
        ("adamw", "gpt2", "clm", {}),
        ("adamw", "gpt2", "clm", {"tie_weights": False}),
        ("adamw", "xlnet", "mlm", {"swap_noise": 0.5}),
        ("adagrad", "gpt2", "clm", {}),
    ],
)
def test_updates_of_the_rows_read_are_those_of_all_rows(
    monkeypatch, optimizer, architecture, task, model
):
    found = []
    for is_sparse in (True, False):
        if not is_sparse:
            monkeypatch.setattr(NextItemModel, "reads_few_items", False)
        loss = {"name": "sampled_softmax", "negatives": 10}
        trainer = trainer_of(architecture, task, model, loss, optimizer=optimizer)
        trainer.grow({"item_id": 500})  # the sessions read 20 of them
        # In float32 AdamW makes whole steps of the rounding errors of gradients that are 0.
        trainer.model.double()
        trainer.model.sampler.set_counts(torch.arange(500))
        if optimizer == "adamw":
            trainer.optimizer.param_groups[0]["eps"] = 1e-12
        are_sparse = noted_steps(
            trainer, monkeypatch, lambda each: each.model.inputs.items.weight.grad.is_sparse
        )
        for window in ("first", "second"):
            trainer.fit(window, epochs_of(), ignore)
        assert {*are_sparse} == {is_sparse}
        found.append(trainer.state())
    sparse, dense = found
    assert sparse.keys() == dense.keys()
    for name, each in sparse.items():
        torch.testing.assert_close(each, dense[name], rtol=1e-4, atol=1e-5)


def test_the_loss_in_bfloat16_is_close_to_that_in_float32():
    losses = [
        trainer_of(precision=precision).fit("w", epochs_of(), ignore)
        for precision in ("float32", "bfloat16")
    ]
    assert losses[0] != losses[1]
    assert losses[1] == pytest.approx(losses[0], rel=0.02)


@pytest.mark.parametrize("capabilities", [{}, {"avx512_bf16": True}, {"amx_bf16": True}])
def test_auto_uses_bfloat16_if_the_cpu_has_instructions_for_it(capabilities, monkeypatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    here = Process(Rank(0, 1), torch.device("cpu"))
    found = [here.uses_bfloat16(precision) for precision in ("auto", "bfloat16", "float32")]
    assert found == [any(capabilities.values()), True, False]


@pytest.mark.parametrize("world", [2, 3, 8])
def test_random_numbers_do_not_depend_on_the_number_of_processes(world):
    """7 rows on 3 processes are padded to 9; the 7 get the numbers they get on one process."""
    sessions, rows = sessions_of(), torch.arange(7)

    def random_numbers(batch):
        return trainers._step_random(batch, 3).uniform("mask")

    whole = random_numbers(sessions.gather(rows, Rank(0, 1)))
    for rank in range(world):
        batch = sessions.gather(rows, Rank(rank, world))
        numbers = random_numbers(batch)
        assert numbers.shape == batch.columns["item_id"].shape
        is_real = batch.sessions >= 0
        assert torch.equal(numbers[is_real], whole[batch.sessions[is_real]])


def test_baselines_count_one_epoch_only():
    model = baseline("transitions", 20)
    trainer = CountingTrainer(model, {"w": 0})
    trainer.grow({"item_id": 20})
    n_sessions = []
    assert trainer.n_steps(epochs_of(n_epochs=3)) == 3
    assert trainer.fit("w", epochs_of(n_epochs=3), n_sessions.append) is None
    assert sum(n_sessions) == 21
    assert model.popularity.sum() == int(sessions_of().lengths.sum())


@pytest.mark.parametrize("precision", ["bfloat16", "auto", "float32"])
def test_a_bfloat16_lstm_is_rejected_on_a_cpu_without_avx512(monkeypatch, precision):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True})
    expected = pytest.raises(ConfigError, match=r"training\.precision: bfloat16.*lstm.*AVX-512")
    with expected if precision == "bfloat16" else nullcontext():
        trainer_of("lstm", precision=precision)
