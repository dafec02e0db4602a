"""Small studies that run on a GPU, a real or a pretended one, and on a CPU."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.csv

from support.memory_models import MEMORY_WITH_GPT2
from support.tiny_settings import GRU4REC, evaluated_windows, merge_sections, train_study
from support.window_folders import day, markov_days

DAYS = markov_days(n_days=3, sessions_per_day=10, n_items=20)
SAMPLED = {"loss": {"name": "sampled_softmax", "label_smoothing": 0.1}}
VARIANTS = {
    "sampled": SAMPLED,
    "bfloat16": {"training": {"precision": "bfloat16"}},
    "features": {"model": {"features": ["category", "price"], "number_dim": 4, "soft_one_hot": 3}},
    "noise": {"model": {"swap_noise": 0.3, "unknown_rate": 0.5, "dropout": 0.1}},
    "untied": {"model": {"tie_weights": False, "item_embedding_dim": 8}},
    "top items": {"evaluation": {"predictions": 3, "positions": "all", "attention_of": []}},
    "window of the past": {"model": {"architecture": "mistral", "config": {"sliding_window": 2}}},
    "gru4rec": GRU4REC,
    "gbce": {"loss": {"name": "gbce"}},
    "bpr": {"loss": {"name": "bpr"}},
    "top1": {"loss": {"name": "top1"}},
    "top1_max": {"loss": {"name": "top1_max"}},
    "bfloat16 gru": {"model": {"architecture": "gru"}, "training": {"precision": "bfloat16"}},
    "memory": MEMORY_WITH_GPT2,
    "memory, sampled": merge_sections(SAMPLED, **MEMORY_WITH_GPT2),
    "all items": {
        "model": {"architecture": "electra"},
        "task": {"name": "rtd", "rtd_replacements": "catalogue"},
    },
}
"""Settings that take paths of their own, beside those of each backbone."""


def fit_and_resume(
    windows: Path, out: Path, sections: Mapping[str, Mapping[str, Any]], device: str
) -> list[float]:
    """Fit on the first of DAYS, then go on from its stored state; return the losses of both."""
    sections = merge_sections(sections, compute={"device": device})
    train_study(windows, out, sections, last=day(1))
    train_study(windows, out, sections)
    assert evaluated_windows(out) == [day(1), day(2)]
    return pyarrow.csv.read_csv(out / "results" / "windows.csv")["train_loss"].to_pylist()


def difference(
    windows: Path, out: Path, sections: Mapping[str, Mapping[str, Any]], device: str
) -> float:
    """The largest relative difference between a device's losses and those of the CPU."""
    of_cpu, found = (
        fit_and_resume(windows, out / name, each, name)
        for name, each in (("cpu", sections), (device, sections))
    )
    return max(abs(b / a - 1) for a, b in zip(of_cpu, found, strict=True))
