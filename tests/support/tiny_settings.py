"""Settings of models small enough to train in a second, and studies with them."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dayahead.config.loading import read_yaml, validated
from dayahead.config.machine import ComputeConfig
from dayahead.config.model import LossConfig, ModelConfig, TaskConfig
from dayahead.config.params import Params, TrainingConfig
from dayahead.model.building import build_model
from dayahead.model.losses import Negatives, catalogue_loss
from dayahead.model.model import CountingModel
from dayahead.model.next_item import NextItemModel
from dayahead.model.output_layer import OutputLayer
from dayahead.model.rng import StepRandom
from dayahead.outputs.tables import read_ranks
from dayahead.train.stage import train
from dayahead.train.study import Study
from support.baseline_settings import LINEAR, MEMORY, NEIGHBOURS
from support.window_folders import tiny_statistics

SHIPPED = read_yaml(Path(__file__).parents[2] / "params.yaml")
"""The settings that come with Dayahead, which those below change."""
MODEL = SHIPPED["model"] | {
    "architecture": "gpt2",
    "network": "none",
    "d_model": 16,
    "n_layer": 1,
    "n_head": 2,
    "unknown_rate": 0.0,
    "item_init_std": 0.5,
    "feature_init_std": 0.5,
    "init_std": 0.2,
    "remind": "score",
    "remind_scale": 2.0,
}
TASK = SHIPPED["task"] | {
    "plm_max_span": 3,
}
LOSS = SHIPPED["loss"] | {
    "name": "softmax",
    "negatives": 10,
    "logits_budget_mib": 64,
}
TRAINING = SHIPPED["training"] | {
    "history": 2,
    "epochs": 1,
    "batch_size": 8,
    "learning_rate": 0.01,
    "precision": "float32",
}
EVALUATION = SHIPPED["evaluation"] | {
    "split": "all",
    "cutoffs": [1, 5],
    "batch_size": 16,
}
COMPUTE = SHIPPED["compute"] | {
    "processes": 1,
    "threads": 1,
    "device": "cpu",
}
MACHINE = SHIPPED["machine"] | {
    "workers": 1,
    "memory_limit": "2GiB",
    "keep_fits": 1,
    "max_restarts": 0,
}
WINDOW = SHIPPED["window"] | {
    "min_sessions": 1,
}
NIGHTLY = SHIPPED["nightly"] | {
    "model": "tiny",
    "metric": "ndcg_at_5",
    "windows": 3,
    "keep": 3,
    "max_session_change": 2.0,
    "min_coverage": 0.9,
    "smoke_sessions": 5,
}
SECTIONS = {name: value for name, value in SHIPPED.items() if isinstance(value, dict)} | {
    "window": WINDOW,
    "preprocess": {"fit_windows": 1, "rebuild": False},
    "model": MODEL,
    "task": TASK,
    "loss": LOSS,
    "neighbours": NEIGHBOURS,
    "linear": LINEAR,
    "memory": MEMORY,
    "training": TRAINING,
    "evaluation": EVALUATION,
    "compute": COMPUTE,
    "machine": MACHINE,
    "profile": {"window": None, "first_step": 0, "steps": 1},
    "tracking": {"sinks": ["mlflow"], "experiment": "tiny", "log_model": False},
    "nightly": NIGHTLY,
}
GRU4REC = {
    "model": {"architecture": "gru4rec", "item_init_std": 0.1},
    "loss": {"name": "bpr_max", "bpr_max_regularisation": 0.5, "elu": 0.5},
    "training": {"optimizer": "adagrad", "learning_rate": 0.05, "momentum": 0.4},
}
"""Its own loss and optimizer, which the other architectures rarely use."""

BACKBONES = [
    ("gpt2", "clm"),
    ("bert", "clm"),
    ("xlnet", "clm"),
    ("bert", "mlm"),
    ("xlnet", "mlm"),
    ("xlnet", "plm"),
    ("xlnet", "rtd"),
    ("electra", "rtd"),
]
every_backbone = pytest.mark.parametrize(("architecture", "task"), BACKBONES)
FAST_BACKBONES = [
    ("gpt2", "clm"),
    ("gru", "clm"),
    ("bert", "mlm"),
    ("xlnet", "plm"),
    ("electra", "rtd"),
]
each_task = pytest.mark.parametrize(
    ("architecture", "task"),
    [
        *FAST_BACKBONES,
        *(
            pytest.param(*pair, marks=pytest.mark.slow)
            for pair in BACKBONES
            if pair not in FAST_BACKBONES
        ),
    ],
)
"""One backbone of each task in the fast tests, and a recurrent one; the others are slow."""


def model_config(**changes: Any) -> ModelConfig:
    return validated(ModelConfig, MODEL | changes, "model")


def task_config(**changes: Any) -> TaskConfig:
    return validated(TaskConfig, TASK | changes, "task")


def loss_config(**changes: Any) -> LossConfig:
    return validated(LossConfig, LOSS | changes, "loss")


def training_config(**changes: Any) -> TrainingConfig:
    return validated(TrainingConfig, TRAINING | changes, "training")


def compute_config(**changes: Any) -> ComputeConfig:
    return validated(ComputeConfig, COMPUTE | changes, "compute")


def loss_of(
    config: LossConfig,
    hidden: torch.Tensor,
    table: torch.Tensor,
    bias: torch.Tensor,
    targets: torch.Tensor,
    negatives: Negatives | None = None,
) -> torch.Tensor:
    """The loss over a catalogue with these rows and biases."""
    return catalogue_loss(config, hidden, OutputLayer(table, bias, len(table)), targets, negatives)


def tiny_model(
    architecture: str = "gpt2",
    task: str = "clm",
    *,
    n_items: int = 30,
    seed: int = 1,
    task_settings: Mapping[str, Any] | None = None,
    loss: Mapping[str, Any] | None = None,
    **changes: Any,
) -> NextItemModel:
    """A model of `n_items` items with the features `category` (3 values) and `price`."""
    model = NextItemModel(
        model_config(architecture=architecture, **changes),
        task_config(name=task, **(task_settings or {})),
        loss_config(**(loss or {})),
        categoricals={"category": 3},
        numbers={"price": "log_number"},
        max_length=8,
        seed=seed,
    )
    model.grow({"item_id": n_items, "category": 3})
    return model


def baseline(architecture: str, n_items: int = 30, **sections: Mapping[str, Any]) -> CountingModel:
    """A baseline of `n_items` items that has counted nothing; `sections` change settings."""
    of_model = {"architecture": architecture, **sections.pop("model", {})}
    params = tiny_params({**sections, "model": of_model})
    model = build_model(params, tiny_statistics(), {}, seed=1)
    assert isinstance(model, CountingModel)
    model.grow({"item_id": n_items})
    return model


def counted(architecture: str, sessions: list[list[int]], n_items: int = 30) -> CountingModel:
    """A baseline fitted on one window of sessions (vocabulary indices)."""
    model = baseline(architecture, n_items)
    count_window(model, sessions)
    return model


def count_window(model: CountingModel, sessions: list[list[int]], start: int = 0) -> None:
    """Fit a baseline on a day of sessions that start at `start` and every second after it."""
    model.start_window((start + 86_400) * 1_000_000)
    count_sessions(model, sessions, start)
    model.finish_window()


def count_sessions(model: CountingModel, sessions: list[list[int]], start: int = 0) -> None:
    """Count sessions that start at `start` and every second after it; events take .1 s."""
    items, lengths = padded(sessions)
    seconds = (start + torch.arange(len(items)))[:, None] + torch.arange(items.shape[1]) / 10
    model.count({"item_id": items, "event_time": (1e6 * seconds).long()}, lengths)


def padded(sessions: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Sessions as a zero-padded tensor [B, L], and their lengths."""
    lengths = [len(session) for session in sessions]
    rows = [session + [0] * (max(lengths) - len(session)) for session in sessions]
    return torch.tensor(rows), torch.tensor(lengths)


def scores_after(
    model: CountingModel, session: list[int], candidates: torch.Tensor | None = None
) -> torch.Tensor:
    """What a baseline scores after a session: all items, or these candidates."""
    items, n_known = padded([session])
    wanted = torch.arange(2, 2 + model.n_items) if candidates is None else candidates
    return model.scorer(wanted)({"item_id": items}, n_known)[0]


def columns_of(items: torch.Tensor) -> dict[str, torch.Tensor]:
    """Input columns of a `tiny_model`; the features are functions of the items."""
    times = torch.arange(items.shape[1]).expand_as(items) * 1_000_000
    features = {"category": items % 3 + 2, "price": items.float() / 10}
    return {"item_id": items, "event_time": times, **features}


def step_random(
    items: torch.Tensor,
    seed: int = 0,
    past: torch.Tensor | None = None,
    rows: torch.Tensor | None = None,
) -> StepRandom:
    """Random numbers of some rows of a global batch, by default of all."""
    past = items.new_zeros(len(items)) if past is None else past
    rows = torch.arange(len(items)) if rows is None else rows
    return StepRandom(seed, items, past, rows, items.shape[1])


@dataclass(frozen=True)
class FixedRandom(StepRandom):
    """A StepRandom whose uniform numbers are given."""

    numbers: torch.Tensor | None = None

    @classmethod
    def of(cls, numbers: torch.Tensor) -> "FixedRandom":
        """These numbers [B, L] for every purpose."""
        return cls(**vars(step_random(numbers)), numbers=numbers)

    def uniform(self, purpose: str) -> torch.Tensor:
        """The given numbers of these rows and positions."""
        assert self.numbers is not None
        return self.numbers[self.rows, : self.width]


def tiny_params(sections: Mapping[str, Mapping[str, Any]] | None = None) -> Params:
    """All settings; `sections` change some: {"training": {"seed": 2}}."""
    changes = sections or {}
    values = {name: given | changes.get(name, {}) for name, given in SECTIONS.items()}
    return validated(Params, {"dataset": "tiny", **values}, "params.yaml")


def tiny_study(
    windows: Path, out: Path, sections: Mapping[str, Mapping[str, Any]] | None = None, **more: Any
) -> Study:
    """A study of the windows from `first` to `last`; `sections` change settings."""
    ends = {name: more.pop(name) for name in ("first", "last") if name in more}
    values = {
        "params": tiny_params(merge_sections(sections, window=ends)),
        "windows": windows,
        "results": out / "results",
        "models": out / "models",
        "cache": out.with_name(f"{out.name}-cache"),
    }
    return Study(**(values | more))


def merge_sections(
    sections: Mapping[str, Mapping[str, Any]] | None, **more: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """Merge changed settings section by section; the later ones win."""
    given = sections or {}
    return {name: {**given.get(name, {}), **more.get(name, {})} for name in {**given, **more}}


def train_study(
    windows: Path, out: Path, sections: Mapping[str, Mapping[str, Any]] | None = None, **more: Any
) -> Path:
    """Run a `tiny_study` on one process; return its folder `out`."""
    train(tiny_study(windows, out, sections, **more))
    return out


def ranks_of(out: Path, window: str) -> np.ndarray:
    """Ranks of a window's sessions, 0 for a miss, in the order of its file."""
    return read_ranks(out / "results", window).ranks


def evaluated_windows(out: Path) -> list[str]:
    """Names of the windows that a study evaluated."""
    return sorted(path.stem for path in (out / "results" / "ranks").glob("*.parquet"))
