"""Dayahead on a machine with GPUs: every backbone beside the CPU, step times, DDP, the pipeline.

Run it first on such a machine, with the packages of the tests (`make .venv/.dev-ready`):
python tools/gpu_smoke.py; --tiny --device cpu tries the script itself without a GPU.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import torch

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "benchmarks"), str(ROOT / "src")]

from dayahead.core.columns import ITEM_ID  # noqa: E402
from dayahead.distributed.launch import run_processes  # noqa: E402
from dayahead.distributed.process import Process  # noqa: E402
from dayahead.train.batches import LoadedBatches  # noqa: E402
from dayahead.train.trainers import GradientTrainer  # noqa: E402
from measurement import seconds  # noqa: E402
from support.backbones import TRAINED  # noqa: E402
from support.gpu_studies import DAYS, difference  # noqa: E402
from support.window_folders import write_window_folder  # noqa: E402
from workload import build_model, default_params, equal_sessions  # noqa: E402

CLOSE = 0.001
"""Relative difference of losses: of sums in another order."""
N_ITEMS, WIDTH, SESSIONS, TARGETS = 400_000, 448, 512, 20
ROUNDS = 10


def compare_backbones(folder: Path, device: str) -> int:
    """Print how far the losses of each backbone and task are from the CPU's; count the distant."""
    windows = write_window_folder(folder / "windows", DAYS, features=True)
    n_distant = 0
    for architecture, task in TRAINED:
        sections = {"model": {"architecture": architecture}, "task": {"name": task}}
        found = difference(windows, folder / f"{architecture}-{task}", sections, device)
        n_distant += found >= CLOSE
        print(
            f"{architecture}/{task}: {found:.1e} {'' if found < CLOSE else 'TOO FAR'}", flush=True
        )
    return n_distant


def time_steps(process: Process, tiny: bool) -> None:
    """Print the median time of a training step of GPT-2/clm, 2 layers, full softmax."""
    n_items, width, n_sessions, n_targets = (
        (300, 16, 8, 4) if tiny else (N_ITEMS, WIDTH, SESSIONS, TARGETS)
    )
    params = default_params()
    model = replace(params.model, architecture="gpt2", d_model=width, n_layer=2, n_head=8)
    params = replace(params, model=model, task=replace(params.task, name="clm"))
    training = replace(params.training, length_groups=1)
    trainer = GradientTrainer(build_model(params, n_targets + 1), training, process)
    trainer.grow({ITEM_ID: n_items})
    sessions = equal_sessions(n_sessions, n_targets + 1, n_items)
    batch = LoadedBatches(sessions, [torch.arange(n_sessions)], process.rank)

    def step() -> None:
        trainer.fit("smoke", [batch], lambda _: None)
        if process.device.type == "cuda":
            torch.cuda.synchronize()

    times = [seconds(step) for _ in range(ROUNDS + 1)][1:]
    if process.is_main:
        print(f"step of {n_sessions} sessions: {1e3 * statistics.median(times):.1f} ms", flush=True)


def run_pipeline(folder: Path) -> int:
    """Run all stages in a clone, `train` with a process for each GPU."""
    subprocess.run(["git", "clone", "--quiet", ROOT, folder / "project"], check=True)
    environment = {**os.environ, "DVC_SITE_CACHE_DIR": str(folder / "site")}
    done = subprocess.run(["dvc", "repro"], cwd=folder / "project", env=environment, check=False)
    return done.returncode


def main() -> int:
    """Run all checks; return whether one failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--tiny", action="store_true", help="small steps, no pipeline")
    given = parser.parse_args()
    if given.device == "cuda" and not torch.cuda.is_available():
        return print(f"error: torch {torch.__version__} sees no GPU here", file=sys.stderr) or 1
    print(f"torch {torch.__version__}, {torch.cuda.device_count()} GPUs", flush=True)
    compute = replace(default_params().compute, device=given.device)
    run_processes(time_steps, compute, given.tiny)
    with tempfile.TemporaryDirectory() as name:
        status = 0 if given.tiny else run_pipeline(Path(name))
        return int(bool(compare_backbones(Path(name), given.device) or status))


if __name__ == "__main__":
    sys.exit(main())
