"""Seconds and peak memory of a shop's days, from the log to the report, by the project's settings.

The log is the embedded one in the size of REES46's: sessions stay in a topic and follow
transitions, items are born and fade. 297,000 sessions a day over 166,794 items in 624 topics, split
as datasets/rees46.yaml splits: four fifths of the sessions are fitted on, a tenth is evaluated.
Stages run one after the other, each in a process of its own, as `dvc repro` runs them. Every list
of settings trains on the same windows.

Command: python benchmarks/shop_days.py [--days 4] [--sessions 297000] [--items 166794]
         [-S model.network=none,training.epochs=1 ...]
"""

import argparse
import csv
import shutil
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from ruamel.yaml import YAML

from dayahead.config.loading import read_yaml
from dayahead.config.sections import nested
from measurement import print_header
from scratch_project import ScratchProject

SIZES = {"days": 4, "sessions_per_day": 297_000, "n_items": 166_794}
N_TOPICS = 624
SPLIT = {"train": [0, 0.8], "valid": [0.8, 0.9], "test": [0.9, 1]}


def set_size(project: ScratchProject, **sizes: int) -> None:
    """Give the embedded log of a project the size and split of a shop; `sizes` as SIZES."""
    source = read_yaml(project.folder / "datasets" / "synthetic.yaml")["source"]
    sizes = source["synthetic"] | SIZES | sizes | {"n_topics": N_TOPICS}
    project.set("datasets/synthetic.yaml", {"source": {"synthetic": sizes}, "split": SPLIT})


def shop(folder: Path, size: argparse.Namespace) -> ScratchProject:
    """Return a project whose log was downloaded and preprocessed."""
    project = ScratchProject.create(folder, {"dataset": "synthetic"})
    set_size(project, days=size.days, sessions_per_day=size.sessions, n_items=size.items)
    for stage in ("download", "preprocess"):
        run_stage(project, stage)
    print(f"sessions of a day: {median(project.session_counts().values()):,.0f}", flush=True)
    return project


def run_stage(project: ScratchProject, stage: str, settings: str = "") -> None:
    """Run a stage and print its seconds and the peak memory of its largest process."""
    cost = project.measure_stage(stage)
    print(f"{stage} {settings}: {cost.seconds:.0f} s, {cost.gib:.2f} GiB", flush=True)


def changed(settings: str) -> dict[str, Any]:
    """Return the values of `section.name=value,...` by section and name."""
    pairs = (setting.split("=") for setting in filter(None, settings.split(",")))
    return nested({name: YAML(typ="safe").load(value) for name, value in pairs})


def measure(project: ScratchProject, settings: str) -> None:
    """Train and aggregate, and print the seconds of each window."""
    with project.changed(changed(settings)):
        for stage in ("train", "aggregate"):
            run_stage(project, stage, settings or "params.yaml")
    results = project.folder / "results"
    with (results / "timing.csv").open() as times, (results / "windows.csv").open() as windows:
        for time, window in zip(csv.DictReader(times), csv.DictReader(windows), strict=True):
            fit, evaluation = (float(time[f"{name}_seconds"]) for name in ("fit", "evaluate"))
            ndcg, recall = (float(window[f"{name}_at_20"]) for name in ("ndcg", "recall"))
            print(
                f"  {time['window']} fit before it {fit:.0f} s, evaluation {evaluation:.0f} s of "
                f"{int(window['n_sessions']):,} sessions, {ndcg:.4f} / {recall:.4f}",
                flush=True,
            )


def main() -> None:
    """Measure the settings of params.yaml, and each list of changes."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--days", type=int, default=SIZES["days"])
    parser.add_argument("--sessions", type=int, default=SIZES["sessions_per_day"])
    parser.add_argument("--items", type=int, default=SIZES["n_items"])
    parser.add_argument("-S", dest="settings", nargs="*", default=[""])
    arguments = parser.parse_args()
    print_header()
    folder = Path(tempfile.mkdtemp())
    try:
        project = shop(folder, arguments)
        for settings in arguments.settings:
            measure(project, settings)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
