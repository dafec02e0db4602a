"""A training step on a GPU, part by part, beside the least time that its products and bytes need.

GPT-2/clm with 2 layers and full softmax, bfloat16. The floor of a part is the longer of its
products at the GPU's peak and its bytes at the bandwidth of its memory, both of the data sheet; the
table in docs/scaling.md is `table_of(SIZES)`.

Command: python benchmarks/gpu.py, and the same with --triton for the softmax by Triton's kernels
(options: --device cpu --tiny, to try it without a GPU)
"""

import argparse
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch.nn.utils import clip_grad_norm_

from dayahead.config.params import Params
from dayahead.core.columns import ITEM_ID
from dayahead.distributed.launch import run_processes
from dayahead.distributed.process import Process
from dayahead.model.output_layer import softmax_loss
from dayahead.train.batches import LoadedBatches
from dayahead.train.trainers import GradientTrainer
from measurement import Work, print_header, seconds
from workload import build_model, default_params, equal_sessions

GPU, PEAK, BANDWIDTH = "H200", 989e12, 4.8e12
"""bfloat16 products per second without sparsity, and bytes per second."""
N_LAYERS, N_HEADS = 2, 8
ROUNDS = 10
BUILD = Path(__file__).parents[1] / "build"


@dataclass(frozen=True)
class Sizes:
    """Of the catalogue, the model and a batch."""

    n_items: int
    width: int
    sessions: int
    targets: int
    """Of each session."""

    @property
    def rows(self) -> int:
        """Targets of a batch."""
        return self.sessions * self.targets


SIZES = Sizes(n_items=400_000, width=448, sessions=512, targets=20)
TINY = Sizes(n_items=300, width=16, sessions=8, targets=4)


def floors(sizes: Sizes) -> dict[str, tuple[float, float]]:
    """Return each part's FLOPs and bytes.

    Softmax: three products (logits, gradients of states and of table); the table is read, copied to
    bfloat16, and its gradient written, and logits never leave the chip. Body: 6 FLOPs per weight
    and row; 34 bytes of activations per row, layer and unit of width (Korthikanti et al. 2022),
    written and read. Optimizer: norm, clipping and AdamW move 40 bytes per weight.
    """
    table = sizes.n_items * sizes.width
    body = 12 * sizes.width**2 * N_LAYERS
    return {
        "softmax": (6.0 * sizes.rows * table, 10.0 * table),
        "body": (6.0 * sizes.rows * body, 2 * 34.0 * sizes.rows * sizes.width * N_LAYERS),
        "optimizer": (0.0, 40.0 * table),
    }


def table_of(sizes: Sizes, measured: Mapping[str, float] | None = None) -> str:
    """Return a Markdown table of floors beside `measured` milliseconds, which may be none yet."""
    parts = floors(sizes)
    total = tuple(map(sum, zip(*parts.values(), strict=True)))
    lines = [
        f"| part | TFLOP | GB | floor on an {GPU} (predicted), ms | measured, ms |",
        "|---|---|---|---|---|",
    ]
    least = {name: 1e3 * max(flop / PEAK, size / BANDWIDTH) for name, (flop, size) in parts.items()}
    least["whole step"] = sum(least.values())
    for name, (flop, size) in {**parts, "whole step": total}.items():
        found = f"{measured[name]:.1f}" if measured else ""
        lines.append(
            f"| {name} | {flop / 1e12:.1f} | {size / 1e9:.1f} | {least[name]:.1f} | {found} |"
        )
    return "\n".join(lines)


def works_of(process: Process, params: Params, sizes: Sizes) -> dict[str, Work]:
    """Return a step and its parts, each to be run again and again."""
    model = replace(
        params.model, architecture="gpt2", d_model=sizes.width, n_layer=N_LAYERS, n_head=N_HEADS
    )
    params = replace(params, model=model, task=replace(params.task, name="clm"))
    training = replace(params.training, length_groups=1)
    trainer = GradientTrainer(build_model(params, sizes.targets + 1), training, process)
    trainer.grow({ITEM_ID: sizes.n_items})
    network, device = trainer.model, process.device
    sessions = equal_sessions(sizes.sessions, sizes.targets + 1, sizes.n_items)
    batch = LoadedBatches(sessions, [torch.arange(sizes.sessions)], process.rank)
    inputs = torch.randn(sizes.sessions, sizes.targets, sizes.width, device=device)
    lengths = torch.full((sizes.sessions,), sizes.targets, device=device)
    states = inputs.flatten(0, 1).clone().requires_grad_()
    targets = torch.randint(sizes.n_items, (sizes.rows,)).to(device)

    def softmax() -> None:
        with torch.autocast(device.type, torch.bfloat16, enabled=trainer.is_bfloat16):
            softmax_loss(states, network.output_layer, targets, params.loss).backward()

    def body() -> None:
        with torch.autocast(device.type, torch.bfloat16, enabled=trainer.is_bfloat16):
            network.body(inputs, lengths).sum().backward()

    def optimizer() -> None:
        clip_grad_norm_(network.parameters(), training.max_grad_norm)
        trainer.optimizer.step()

    step = {"whole step": lambda: trainer.fit("benchmark", [batch], lambda _: None)}
    return step | {"softmax": softmax, "body": body, "optimizer": optimizer}


def run(process: Process, params: Params, sizes: Sizes, out: Path) -> None:
    """Time the step and its parts, and write the table."""

    def milliseconds(work: Work) -> float:
        def finished() -> None:
            work()
            if process.device.type == "cuda":
                torch.cuda.synchronize()

        times = [seconds(finished) for _ in range(ROUNDS + 1)][1:]
        return 1e3 * statistics.median(times)

    works = works_of(process, params, sizes)
    table = table_of(sizes, {name: milliseconds(work) for name, work in works.items()})
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(f"{table}\n", encoding="utf-8")
    print(f"{table}\nwritten to {out}")


def main(words: Sequence[str] | None = None) -> None:
    """Measure on the device, or end with one line where there is none."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--triton", action="store_true")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(words)
    if given.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit(f"error: torch {torch.__version__} sees no GPU here; nothing was run")
    if given.triton and given.device == "cpu":
        parser.error("--triton needs a GPU")
    print_header()
    params = default_params()
    params = replace(params, loss=replace(params.loss, triton=given.triton))
    compute = replace(params.compute, device=given.device)
    out = given.out or BUILD / ("gpu-triton.md" if given.triton else "gpu.md")
    run_processes(run, compute, params, TINY if given.tiny else SIZES, out)


if __name__ == "__main__":
    main()
