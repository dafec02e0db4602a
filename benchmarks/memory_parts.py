"""What the parts of `memory` bring and cost: NDCG@20, recall@20, CPU seconds of one thread.

Each list of settings is changed in params.yaml: the network and its epochs and loss, then, without
a network, the width of the head, its candidates and its examples. Windows are those of
peer_accuracy.py; all sessions are evaluated, of a shop those of test. Seconds are of all fits and
evaluations.

Command: python benchmarks/memory_parts.py [--logs synthetic rees46_head diginetica g1 shop]
         [-S model.network=none,memory.head_width=32 ...]
"""

import argparse
import csv
import shutil
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

from tabulate import tabulate

from dayahead.core.phases import read_phases
from measurement import print_header
from peer_accuracy import DATASETS, FOLDER, windows_of
from scratch_project import ScratchProject
from shop_days import changed

SMALL = [name for name in DATASETS if name != "shop"]
OF_NETWORK = ["", "training.epochs=1", "loss.name=softmax", "loss.name=sampled_softmax"]
OF_HEAD = ["head_width=32", "head_width=128", "n_candidates=75", "n_candidates=300"]
OF_HEAD += ["n_examples=10000", "n_examples=50000"]
ALONE = "model.network=none"
PARTS = [*OF_NETWORK, ALONE, *(f"{ALONE},memory.{each}" for each in OF_HEAD)]
METRICS = "ndcg", "recall"
PHASES = {"fit", "evaluate"}


def measure(project: ScratchProject, settings: str) -> str:
    """Train; return the mean metrics and the CPU seconds."""
    with project.changed(changed(settings)):
        project.run_stage("train")
    results = project.folder / "results"
    with (results / "windows.csv").open() as file:
        windows = [*csv.DictReader(file)]
    ndcg, recall = (fmean(float(window[f"{name}_at_20"]) for window in windows) for name in METRICS)
    times = read_phases(results / "phases" / "train.csv")
    seconds = sum(row.cpu_seconds for row in times if row.phase in PHASES)
    return f"{ndcg:.4f} / {recall:.4f}, {seconds:.0f} s"


def main() -> None:
    """Measure every list of settings on every log."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--logs", nargs="+", choices=DATASETS, default=SMALL)
    parser.add_argument("-S", dest="settings", nargs="+", default=PARTS)
    chosen = parser.parse_args()
    print_header()
    cells: dict[str, dict[str, str]] = {each: {} for each in chosen.settings}
    for log in chosen.logs:
        windows_of(log)
        split = "all" if log in SMALL else "test"
        with TemporaryDirectory() as folder:  # whose cache is its own
            project = ScratchProject(Path(folder))
            shutil.copytree(FOLDER / log, folder, dirs_exist_ok=True)
            project.set("params.yaml", {"evaluation": {"split": split}, "compute": {"threads": 1}})
            measure(project, ALONE)  # which compiles
            for settings, row in cells.items():
                row[log] = measure(project, settings)
                print(log, settings or "params.yaml", row[log], flush=True)
    table = [{"settings": each or "params.yaml", **row} for each, row in cells.items()]
    print(tabulate(table, headers="keys", tablefmt="github"))


if __name__ == "__main__":
    main()
