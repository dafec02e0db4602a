"""The softmax's Triton kernels against torch's dense one: interpreted, or on a GPU if there is one.

They are compiled for several GPUs too, which needs none.
"""

import os
import subprocess
import sys
from importlib import import_module
from itertools import product
from threading import Lock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from triton.errors import TritonError

from dayahead.core.errors import ConfigError
from dayahead.model import output_layer
from dayahead.model.output_layer import OutputLayer, check_triton, softmax_loss
from support.dense_softmax import (
    Halves,
    dense,
    problem,
    relative_errors,
    rows_of,
    with_gradients,
)
from support.tiny_settings import loss_config

kernels = import_module(output_layer.KERNELS)
DEVICE = torch.device("cpu" if os.environ["TRITON_INTERPRET"] == "1" else "cuda")
BY_TRITON, BY_TORCH = (loss_config(logits_budget_mib=3, triton=each) for each in (True, False))
COMPILE = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from dayahead.model import softmax_kernels as kernels

NAMES = {"n_items": "i32", "n_states": "i32", "row_stride": "i32", "own": "*i64"}
BLOCKS = {
    name: getattr(kernels, name.upper())
    for name in ("sum_states", "sum_items", "tile_states", "tile_items", "tiles")
}
for kernel in (kernels._log_sums_and_scores, kernels._to_gradients):
    for dtype in ("bf16", "fp32"):
        types = {name: NAMES.get(name, "*fp32") for name in kernel.arg_names}
        types["products"] = f"*{dtype}"
        blocks = {name: BLOCKS[name] for name in BLOCKS.keys() & types.keys()}
        types |= dict.fromkeys(blocks, "constexpr")
        blocks = {(kernel.arg_names.index(name),): size for name, size in blocks.items()}
        for capability in (80, 90, 100):
            target = GPUTarget("cuda", capability, 32)
            options = {"num_warps": kernels.WARPS}
            compiled = triton.compile(ASTSource(kernel, types, blocks), target, options)
            ptx, cubin = compiled.asm["ptx"], compiled.asm["cubin"]
            is_rounded = "cvt.rn.bf16.f32" in ptx
            print(kernel.__name__, dtype, capability, len(cubin) > 1000, is_rounded)
"""


SIZES = {
    name: getattr(kernels, name)
    for name in ("SUM_STATES", "SUM_ITEMS", "TILE_STATES", "TILE_ITEMS", "TILES", "WARPS")
}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Blocks smaller than the problems."""
    small = {"SUM_STATES": 2, "SUM_ITEMS": 16, "TILE_STATES": 4, "TILE_ITEMS": 8, "TILES": 2}
    for name, size in small.items() | {("WARPS", 1)}:
        monkeypatch.setattr(kernels, name, size)


def loss_by(config, states, table, bias, targets, corrections=None):
    return softmax_loss(states, OutputLayer(table, bias, len(table)), targets, config, corrections)


def on_device(*parts):
    return [part.detach().to(DEVICE).requires_grad_(part.requires_grad) for part in parts]


def assert_dense(loss, parts, targets, limit=3e-5):
    assert max(relative_errors(loss, parts, targets)) <= limit


@pytest.mark.long
@settings(max_examples=10)
@given(
    st.integers(0, 20),
    st.integers(1, 40),
    st.integers(1, 30),
    st.sampled_from([1.0, 10.0]),
    st.integers(0, 99),
)
def test_loss_and_gradients_are_the_dense_ones(n_targets, n_items, n_rows, scale, seed):
    *parts, targets = on_device(*problem(n_targets, n_items, 4, seed, scale))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(output_layer, "rows_per_chunk", rows_of(n_rows))
        assert_dense(loss_by(BY_TRITON, *parts, targets), parts, targets)


def test_scores_beyond_the_range_of_exp():
    states, table, bias, targets = on_device(*problem(5, 20, 4))
    parts = [states, table, (bias + 1e4).detach().requires_grad_()]
    assert_dense(loss_by(BY_TRITON, *parts, targets), parts, targets, limit=1e-3)


@pytest.mark.long
@pytest.mark.parametrize(
    ("n_rows", "is_corrected"),
    [
        (64, True),
        *(
            pytest.param(n_rows, is_corrected, marks=pytest.mark.slow)
            for n_rows, is_corrected in product([8, 64, 1000], [False, True])
            if (n_rows, is_corrected) != (64, True)
        ),
    ],
)
def test_bfloat16_is_what_torch_s_passes_compute(chunk_rows, n_rows, is_corrected):
    """An item with a correction of -inf does not count, but as a target."""
    chunk_rows(n_rows)
    *parts, targets = on_device(*problem(n_targets=150, n_items=50, dim=16, scale=0.3))
    targets[:70] = 3
    corrections = torch.linspace(-2, 2, 50, device=DEVICE).index_fill(
        0, torch.tensor([3, 4], device=DEVICE), -torch.inf
    )
    with torch.autocast(DEVICE.type, torch.bfloat16):
        losses = [
            loss_by(config, *parts, targets, corrections if is_corrected else None)
            for config in (BY_TRITON, BY_TORCH)
        ]
    found, wanted = (with_gradients(loss, *parts) for loss in losses)
    assert found[0].dtype == torch.float32
    # Loss, states, table, bias; bfloat16 rounds by .004, and Triton's interpreter down by .008.
    limits = (1e-6, 0.005, 0.005, 1e-5)
    for one, other, limit in zip(found, wanted, limits, strict=True):
        assert (one - other).norm() <= limit * other.norm().clamp(min=1)


def test_a_target_of_high_probability_has_an_exact_gradient_in_bfloat16():
    states, table, _, targets = on_device(*problem(20, 6, 4))
    large = torch.zeros(6, device=DEVICE)
    large[3] = 8.5
    parts = [part.detach().requires_grad_() for part in (states * 0, table, large)]
    targets = targets * 0 + 3
    with torch.autocast(DEVICE.type, torch.bfloat16):
        found = with_gradients(loss_by(BY_TRITON, *parts, targets), *parts)
    wanted = with_gradients(dense(*parts, targets), *parts)
    torch.testing.assert_close(found[3][3], wanted[3][3], rtol=0.004, atol=0)


@pytest.mark.parametrize("n_items", [3, 40])
def test_two_shards_together_are_the_whole(monkeypatch, n_items):
    one_at_a_time = Lock()  # the interpreter is not made for threads

    def locked(kernel):
        def call(*args):
            with one_at_a_time:
                return kernel(*args)

        return call

    for name in ("log_sums_and_scores", "to_gradients"):
        monkeypatch.setattr(kernels, name, locked(getattr(kernels, name)))
    *parts, targets = on_device(*problem(11, n_items, 4))
    assert_dense(Halves().loss(*parts, targets, BY_TRITON), parts, targets)


@pytest.mark.slow
def test_blocks_of_the_size_for_gpus(monkeypatch):
    for name, size in SIZES.items():
        monkeypatch.setattr(kernels, name, size)
    *parts, targets = on_device(*problem(n_targets=300, n_items=2_049, dim=8))
    assert_dense(loss_by(BY_TRITON, *parts, targets), parts, targets)


@pytest.mark.long
def test_rows_of_logits_may_be_apart(monkeypatch):
    """As on a GPU, where they begin at multiples of 64 items."""
    monkeypatch.setattr(
        output_layer, "_aligned", lambda like, n_rows, width: like.new_zeros(n_rows, 64)[:, :width]
    )
    *parts, targets = on_device(*problem(n_targets=30, n_items=50))
    for config in (BY_TRITON, BY_TORCH):
        assert_dense(loss_by(config, *parts, targets), parts, targets)


def test_nothing_is_written_beyond_the_states_and_items():
    """Five states and 20 items, which fill no block, of tensors with room for more."""

    def tensor(*size):
        return torch.full(size, 7.0, device=DEVICE)

    products, bias, own = tensor(8, 24), tensor(24), torch.arange(8, device=DEVICE)
    log_sums, scores, sums = tensor(8), tensor(8), tensor(48)
    sizes = {"n_states": 5, "n_items": 20, "row_stride": 24}
    kernels._log_sums_and_scores[3,](
        products, bias, bias, own, log_sums, scores, **sizes, sum_states=2, sum_items=16
    )
    kernels._to_gradients[3, 1](
        *(products, bias, own, log_sums, scores, sums),
        **sizes,
        **{"tile_states": 4, "tile_items": 8, "tiles": 2},
    )
    for rows in (log_sums, scores, products[:, :20]):
        assert (rows[:5] != 7).all()
        assert (rows[5:] == 7).all()
    assert (products[:, 20:] == 7).all()
    assert (sums[:20] != 7).all()
    assert (sums[20:] == 7).all()


def test_a_score_that_is_no_number_shows_in_the_loss():
    states, table, bias, targets = on_device(*problem(5, 20, 4))
    with torch.no_grad():
        table[7] = torch.nan
    assert loss_by(BY_TRITON, states, table, bias, targets).isnan()


@pytest.mark.slow
def test_the_kernels_compile_for_gpus(tmp_path):
    variables = {name: each for name, each in os.environ.items() if name != "TRITON_INTERPRET"}
    variables["TRITON_CACHE_DIR"] = str(tmp_path)
    command = [sys.executable, "-c", COMPILE]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [line[:3] for line in lines] == [
        [kernel, dtype, capability]
        for kernel in ("_log_sums_and_scores", "_to_gradients")
        for dtype in ("bf16", "fp32")
        for capability in ("80", "90", "100")
    ], done.stderr
    for kernel, dtype, _, is_code, is_rounded in lines:
        assert is_code == "True"
        assert is_rounded == str(kernel == "_to_gradients" and dtype == "bf16")


class TestCheck:
    GPU = torch.device("cuda", 0)

    @pytest.fixture
    def without_gpu(self, monkeypatch):
        """Let it try the kernels where they run."""
        zeros = torch.zeros
        monkeypatch.setattr(
            torch, "zeros", lambda *size, dtype, device: zeros(size, dtype=dtype, device=DEVICE)
        )

    def test_a_cpu_is_refused(self):
        wanted = r"loss\.triton is true, but this run uses the CPU; set"
        with pytest.raises(ConfigError, match=wanted):
            check_triton(torch.device("cpu"), torch.float32)

    @pytest.mark.parametrize("kernel", ["log_sums_and_scores", "to_gradients"])
    @pytest.mark.parametrize(
        "error",
        [
            ModuleNotFoundError("No module named 'triton'"),
            RuntimeError("Failed to find C compiler."),
            subprocess.CalledProcessError(1, ["gcc"]),
            AssertionError("libcuda.so cannot found!"),
            TritonError("PTX was not compiled"),
        ],
    )
    def test_the_error_names_what_keeps_triton_from_running(
        self, monkeypatch, without_gpu, error, kernel
    ):
        def fail(*_):
            raise error

        monkeypatch.setattr(kernels, kernel, fail)
        name = type(error).__name__
        with pytest.raises(ConfigError, match=rf"cannot run a kernel here \({name}.*C compiler"):
            check_triton(self.GPU, torch.float32)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    def test_a_device_that_runs_the_kernels_is_accepted(self, without_gpu, dtype):
        check_triton(self.GPU, dtype)
