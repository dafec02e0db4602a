"""Small studies that must give the same results on one process and on two."""

from pathlib import Path

import pytest

from dayahead.distributed.launch import run_processes
from dayahead.train.study import Study
from support.tiny_settings import BACKBONES, GRU4REC, compute_config, merge_sections, tiny_study
from support.window_folders import day, markov_days, write_window_folder
from support.worker_studies import run_and_record

N_SESSIONS = 17
"""Per day, in batches of 8: the last batch has one session, and rank 1 only an empty row."""
N_STEPS = 3
"""Of an epoch."""
DAYS = markov_days(n_days=3, sessions_per_day=N_SESSIONS, n_items=20)
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
    "sampled-plm": ({"architecture": "xlnet"}, "plm", {}),
    "sampled-rtd": ({"architecture": "electra"}, "rtd", {}),
    "gru4rec": (GRU4REC["model"], "clm", GRU4REC["training"]),
    "streamed": ({}, "clm", {"loader": "stream"}),
    **{
        name: ({"architecture": name}, "clm", {})
        for name in ("transitions", "vstan", "slist", "memory")
    },
}
SHARDED = {
    "features-sharded": ({"features": ["category", "price"]}, "clm", {}),
    "untied-sharded": ({"tie_weights": False, "item_embedding_dim": 8}, "clm", {}),
    "sampled-sharded": ({}, "clm", {}),
    "gru4rec-sharded": (GRU4REC["model"], "clm", GRU4REC["training"]),
    "rtd-sharded": ({"architecture": "electra"}, "rtd", {}),
    "plm-sharded": ({"architecture": "xlnet"}, "plm", {}),
}
"""On two processes the item table is sharded."""
VARIANTS |= SHARDED
SAMPLED = {"name": "sampled_softmax", "popularity_exponent": 0.75}
LOSSES = {
    **dict.fromkeys(("sampled", "sampled-plm", "sampled-rtd"), SAMPLED),
    **dict.fromkeys(("gru4rec", "gru4rec-sharded"), GRU4REC["loss"]),
    "sampled-sharded": SAMPLED | {"label_smoothing": 0.1},
    "untied-sharded": {"label_smoothing": 0.1},
}
TASKS = {"rtd-sharded": {"rtd_replacements": "catalogue"}}
PROTOCOLS = {
    "default": {"protocol": "incremental"},
    "sliding": {"protocol": "sliding", "carry_model": False, "steps_per_window": 7},
    "from_scratch": {"protocol": "from_scratch", "loader": "memory", "epochs": 2},
    "incremental": {"carry_optimizer": False, "steps_per_window": 5},
}
FAST = ("sampled", "features-sharded")
"""In the fast tests; the other variants and protocols are slow."""


def _marked(names):
    return [pytest.param(n, marks=() if n in FAST else pytest.mark.slow) for n in names]


every_variant = pytest.mark.parametrize("name", _marked(VARIANTS))
every_protocol = pytest.mark.parametrize("name", _marked(PROTOCOLS))


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


def resumed_studies(windows: Path, out: Path) -> dict[str, Study]:
    """Studies for two processes, with sharded items and without.

    `resumed` continues `short`, of all days but the last; `whole` runs at once. `short-no-dropout`
    is left for one process to continue: with dropout its cache would not be shared.
    """
    dropout = {"model": {"dropout": 0.2, "input_dropout": 0.1}}

    def study(name: str, cache: str, sections: dict = dropout, last: str | None = None) -> Study:
        sections = merge_sections(sections, compute={"shard_items": name.endswith("sharded")})
        return tiny_study(windows, out / name, sections, cache=out / cache, last=last)

    last_but_one = day(len(DAYS) - 2)
    studies = {}
    for kind in ("", "-sharded"):
        studies[f"whole{kind}"] = study(f"whole{kind}", f"cache-a{kind}")
        studies[f"short{kind}"] = study(f"short{kind}", f"cache-b{kind}", last=last_but_one)
        studies[f"resumed{kind}"] = study(f"resumed{kind}", f"cache-b{kind}")
    name = "short-no-dropout-sharded"
    studies[name] = study(name, "cache-no-dropout", {}, last=last_but_one)
    return studies


def run_both_ways(folder: Path, names: list[str]) -> tuple[Path, Path]:
    """Run studies on one process, then on two; return the folders of both.

    With the slow ones, on two processes, run also the studies that are resumed.
    """
    windows = write_window_folder(folder / "windows", DAYS, features=True)
    for n_processes in (1, 2):
        out = folder / str(n_processes)
        studies: dict[str, Study] = {
            name: tiny_study(windows, out / name, sections_of(name)) for name in names
        }
        if n_processes == 2 and not set(names) <= set(FAST):
            studies |= resumed_studies(windows, out)
        run_processes(run_and_record, compute_config(processes=n_processes), studies, out)
    return folder / "1", folder / "2"
