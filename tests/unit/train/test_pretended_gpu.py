"""Whole studies on a pretended GPU: no device fault, the results of the CPU, one wait in a step."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
import torch.distributed as dist

from dayahead.distributed.collectives import Collectives
from dayahead.distributed.process import Process, Rank
from dayahead.distributed.sharding import Shard
from dayahead.model.inputs import EventInputs
from dayahead.train.batches import LoadedBatches, Sessions
from dayahead.train.trainers import GradientTrainer
from support.backbones import TRAINED
from support.gpu_studies import DAYS, SAMPLED, VARIANTS, fit_and_resume
from support.pretended_gpu import GPU, pretended_gpu
from support.tiny_settings import (
    FAST_BACKBONES,
    merge_sections,
    ranks_of,
    tiny_model,
    train_study,
    training_config,
)
from support.window_folders import Vocabulary, day, session_table, write_window_folder

SHARDED = {
    **{
        f"{architecture} {task}": {"model": {"architecture": architecture}, "task": {"name": task}}
        for architecture, task in FAST_BACKBONES
    },
    "sampled": SAMPLED,
    "all items": VARIANTS["all items"],
    "untied": VARIANTS["untied"],
}
FAST = ("gpt2-clm", "sampled")
"""Of backbones, variants and sharded variants; all others are slow."""
OF_STRIDES = "aten.index_add_"
"""Longformer's backward allocates in C++, where the pretended tensors are on the CPU."""
STEPS = [
    *(
        pytest.param(*pair, {}, marks=() if pair[1] == "rtd" else pytest.mark.slow)
        for pair in FAST_BACKBONES
    ),
    ("gpt2", "clm", SAMPLED),
    ("gpt2", "clm", {"swap_noise": 0.2, "unknown_rate": 0.2, "features": ["category", "price"]}),
]


def mark_slow(cases):
    """Parametrize over names, or pairs of an architecture and a task."""
    for case in cases:
        values = (case,) if isinstance(case, str) else case
        marks = () if "-".join(values) in FAST else pytest.mark.slow
        yield pytest.param(*values, marks=marks)


@pytest.fixture(scope="module")
def windows(tmp_path_factory):
    return write_window_folder(tmp_path_factory.mktemp("windows"), DAYS, features=True)


@dataclass(frozen=True)
class LoneShard(Shard):
    """All rows on one process, which exchanges them with itself."""

    is_whole = False


@pytest.fixture
def shard_of_one(monkeypatch):
    """Let a study of one process exchange rows through a process group."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    monkeypatch.setattr(Shard, "create", lambda rank: LoneShard(0, 1, Collectives()))
    yield {"compute": {"shard_items": True}}
    dist.destroy_process_group()


def faults_of(windows, out, sections):
    with pretended_gpu() as gpu:
        fit_and_resume(windows, out, sections, "cuda")
    assert gpu.kernels
    return {name: n for name, n in gpu.faults.items() if OF_STRIDES not in name}


@pytest.mark.slow
@pytest.mark.parametrize(("architecture", "task"), TRAINED)
def test_every_backbone_runs(windows, tmp_path, architecture, task):
    sections = {"model": {"architecture": architecture}, "task": {"name": task}}
    assert faults_of(windows, tmp_path, sections) == {}


@pytest.mark.long
@pytest.mark.parametrize("variant", [*mark_slow(VARIANTS)])
def test_every_variant_runs(windows, tmp_path, variant):
    assert faults_of(windows, tmp_path, VARIANTS[variant]) == {}


@pytest.mark.long
@pytest.mark.parametrize("variant", [*mark_slow(SHARDED)])
def test_sharded_items_run(windows, tmp_path, shard_of_one, variant):
    sections = merge_sections(SHARDED[variant], **shard_of_one)
    assert faults_of(windows, tmp_path, sections) == {}


@pytest.mark.long
@pytest.mark.parametrize(("architecture", "task"), [*mark_slow([("gpt2", "clm"), ("bert", "mlm")])])
def test_results_are_those_of_the_cpu(windows, tmp_path, architecture, task):
    """Though SDPA is called otherwise, for which see huggingface.py."""
    sections = {"model": {"architecture": architecture}, "task": {"name": task}}
    assert faults_of(windows, tmp_path / "gpu", sections) == {}
    train_study(windows, tmp_path / "cpu", sections)

    for window in (day(1), day(2)):
        on_gpu, on_cpu = (ranks_of(tmp_path / name, window) for name in ("gpu", "cpu"))
        assert np.array_equal(on_gpu, on_cpu)


def waits_of_a_step(architecture, task, n_groups, **settings):
    """What the host waits for in the second of two steps."""
    sessions = Sessions.from_table(session_table(0, DAYS[0], Vocabulary(DAYS), features=True))
    with pretended_gpu() as gpu:
        model = tiny_model(architecture, task, **settings)
        if model.sampler is not None:
            model.sampler.set_counts(torch.ones(30, dtype=torch.int64))
        training = training_config(length_groups=n_groups)
        trainer = GradientTrainer(model, training, Process(Rank(0, 1), GPU))
        batches = LoadedBatches(sessions, [torch.arange(10)] * 2, trainer.rank)
        before = []
        trainer.fit("w", [batches], lambda _: before.append(gpu.waits.total()))
    assert dict(gpu.faults) == {}
    return before[1] - before[0]


@pytest.mark.parametrize("n_groups", [pytest.param(1, marks=pytest.mark.slow), 4])
@pytest.mark.parametrize(("architecture", "task", "settings"), STEPS)
def test_the_host_waits_once_in_a_step(architecture, task, settings, n_groups):
    """For the loss and the gradient norm, however many parts the batch goes through in."""
    assert waits_of_a_step(architecture, task, n_groups, **settings) == 1


@pytest.mark.long
def test_a_cpu_tensor_beside_cuda_ones_is_found(windows, tmp_path, monkeypatch):
    """With the line of source that added it."""
    forward = EventInputs.forward
    monkeypatch.setattr(
        EventInputs, "forward", lambda *given: forward(*given) + torch.zeros(1, 1, 16)
    )
    found = faults_of(windows, tmp_path, {})
    assert found
    assert all("aten.add.Tensor: CPU tensors [(1, 1, 16)]" in fault for fault in found)
    assert all("test_pretended_gpu.py" in fault for fault in found)


def read_as_numpy(values):
    np.asarray(values)


def index_by_cuda(values):
    torch.arange(3)[values.long()]


def recur_under_autocast(values):
    gru = torch.nn.GRU(2, 2).to(GPU)
    with torch.autocast("cuda", torch.bfloat16):
        gru(values[None])


def fuse_with_cpu_steps(values):
    optimizer = torch.optim.AdamW([values.requires_grad_()], fused=True)
    values.grad = torch.ones_like(values)
    optimizer.step()
    optimizer.state[values]["step"] = torch.tensor(1.0)
    optimizer.step()


@pytest.mark.parametrize(
    "mistake",
    [
        *(read_as_numpy, index_by_cuda, recur_under_autocast, fuse_with_cpu_steps),
    ],
)
def test_what_a_gpu_refuses_is_found(mistake):
    with pretended_gpu() as gpu:
        values = torch.zeros(2, 2, device=GPU)
        assert not gpu.faults
        mistake(values)
    assert gpu.faults


def test_a_collective_of_cpu_tensors_is_found(shard_of_one):
    with pretended_gpu() as gpu:
        dist.all_reduce(torch.zeros(2, device=GPU))
        assert not gpu.faults
        dist.all_reduce(torch.zeros(2))
    assert gpu.faults


def test_waits_are_counted():
    with pretended_gpu() as gpu:
        values = torch.arange(4, device=GPU)
        chosen = values[values > 1]
        assert [values.sum().item(), chosen.tolist(), len(values.unique())] == [6, [2, 3], 4]
        assert torch.ones(3).to(GPU).cpu().equal(torch.ones(3))
        before = gpu.waits.total()
        torch.ones(3).pin_memory().to(GPU, non_blocking=True)
        values[values > 1] = 0
    assert before == gpu.waits.total() == 6
