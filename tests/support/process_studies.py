"""Small studies that must give the same results on one process and on two."""

from pathlib import Path

import pytest

from dayahead.distributed.launch import run_processes
from dayahead.train.run import Study
from support.tiny_settings import BACKBONES, compute_config, tiny_study
from support.window_folders import markov_days, write_window_folder
from support.worker_studies import run_and_record

N_SESSIONS = 33
"""Per day, in batches of 8: the last batch has one session, and rank 1 only an empty row."""
DAYS = markov_days(n_days=4, sessions_per_day=N_SESSIONS, n_items=20)
CHOSEN = ["1-000002", "2-000004"]
"""Sessions whose attention weights are written."""

VARIANTS = {
    **{
        f"{architecture}-{task}": ({"architecture": architecture}, task, {})
        for architecture, task in BACKBONES
    },
    "untied": ({"tie_weights": False, "item_embedding_dim": 8}, "clm", {}),
    "features": ({"features": ["category", "price"]}, "clm", {}),
    "sampled": ({}, "clm", {}),
    "streamed": ({}, "clm", {"loader": "nvtabular"}),
    "transitions": ({"architecture": "transitions"}, "clm", {}),
}
SHARDED = {
    "features-sharded": ({"features": ["category", "price"]}, "clm", {}),
    "untied-sharded": ({"tie_weights": False, "item_embedding_dim": 8}, "clm", {}),
    "sampled-sharded": ({}, "clm", {}),
    "rtd-sharded": ({"architecture": "electra"}, "rtd", {}),
    "plm-sharded": ({"architecture": "xlnet"}, "plm", {}),
}
"""On two processes the item table is sharded."""
VARIANTS |= SHARDED
SAMPLED = {"name": "sampled_softmax", "popularity_exponent": 0.75}
LOSSES = {
    "sampled": SAMPLED,
    "sampled-sharded": SAMPLED | {"label_smoothing": 0.1},
    "untied-sharded": {"label_smoothing": 0.1},
}
TASKS = {"rtd-sharded": {"rtd_replacements": "catalogue", "rtd_tied_generator": False}}
PROTOCOLS = {
    "default": {"protocol": "incremental"},
    "sliding": {"protocol": "sliding", "carry_model": False, "steps_per_window": 7},
    "from_scratch": {"protocol": "from_scratch", "loader": "memory", "epochs": 2},
    "incremental": {"carry_optimizer": False, "steps_per_window": 6},
}
AT_ONCE = (
    *("gpt2-clm", "xlnet-plm", "electra-rtd", "untied", "sampled", "streamed", "transitions"),
    *("features-sharded", "rtd-sharded"),
)
"""In the fast tests, with the protocols; the other variants are slow."""

every_variant = pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in AT_ONCE else pytest.mark.slow) for name in VARIANTS],
)
every_protocol = pytest.mark.parametrize("name", PROTOCOLS)


def sections_of(name: str) -> dict:
    """Return the settings of a study by its name."""
    if name in PROTOCOLS:
        schedule = {"schedule": "cosine", "cosine_cycles": 1.5, "warmup_steps": 2}
        more = {"train_sessions": 11, "predictions": 4, "attention_of": CHOSEN}
        return {
            "model": {"features": ["category", "price"]},
            "training": PROTOCOLS[name] | schedule,
            "evaluation": {"positions": "all", **more},
        }
    model, task, training = VARIANTS[name]
    return {
        "model": model,
        "task": {"name": task, **TASKS.get(name, {})},
        "loss": LOSSES.get(name, {}),
        "training": {"epochs": 2, **training},
        "evaluation": {"split": "test"},
        "compute": {"shard_items": name.endswith("sharded")},
    }


def run_both_ways(folder: Path, names: list[str]) -> tuple[Path, Path]:
    """Run studies on one process, then on two; return the folders of both."""
    windows = write_window_folder(folder / "windows", DAYS, features=True)
    for n_processes in (1, 2):
        out = folder / str(n_processes)
        studies: dict[str, Study] = {
            name: tiny_study(windows, out / name, sections_of(name)) for name in names
        }
        run_processes(run_and_record, compute_config(processes=n_processes), studies, out)
    return folder / "1", folder / "2"
