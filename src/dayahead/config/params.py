"""params.yaml as frozen dataclasses, one per section.

No field has a default: a default in code would be a parameter that DVC cannot see.
"""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field
from pydantic.dataclasses import dataclass

from dayahead.config.baselines import MEMORY, NETWORKS_AND_PLUGINS, adds_fits
from dayahead.config.loading import (
    STRICT,
    Count,
    CountOrZero,
    Fraction,
    NonNegative,
    Positive,
    Seed,
    Size,
    read_yaml,
    validated,
)
from dayahead.config.machine import ComputeConfig, MachineConfig, ProfileConfig
from dayahead.config.marks import EVERY_MODEL, NETWORKS, ReadIf
from dayahead.config.metric_names import known_metrics
from dayahead.config.model import ModelSections
from dayahead.config.nightly import NightlyConfig
from dayahead.config.sections import flattened
from dayahead.config.windows import PreprocessConfig, WindowConfig
from dayahead.core.errors import ConfigError

OUTSIDE = ("machine", "nightly")
"""Sections that are no part of the study: they change no result."""


_WITHOUT_STEPS = ReadIf(lambda p: p.training.steps_per_window is None)
_SLIDING = ReadIf(lambda p: p.training.protocol == "sliding")


def _optimizer(name: str) -> ReadIf:
    return ReadIf(lambda p: p.training.optimizer == name)


@dataclass(frozen=True, kw_only=True, config=STRICT)
class TrainingConfig:
    """The protocol over windows and the steps within one."""

    READ_BY: ClassVar = NETWORKS
    protocol: Annotated[Literal["incremental", "sliding", "from_scratch"], EVERY_MODEL]
    """incremental: one model is carried on and fitted on each window; sliding: it is fitted on the
    last `history` windows; from_scratch: a fresh model is fitted on all windows so far. Baselines
    and `memory` count the same windows once: under sliding with a fresh model only (`carry_model:
    false`). The candidates `seen` are always the items of all windows so far."""
    history: Annotated[Count, EVERY_MODEL, _SLIDING]
    """Windows that `sliding` fits on, the newest included; fewer at the start of a log."""
    carry_model: Annotated[bool, EVERY_MODEL, _SLIDING]
    """Whether `sliding` carries the model on; false: each fit starts from the same fresh model."""
    carry_optimizer: Annotated[bool, ReadIf(lambda p: not p.training.starts_afresh)]
    """Whether the optimizer state is carried on too; false: it restarts at each window."""
    epochs: Annotated[int, Field(ge=1, le=10_000), _WITHOUT_STEPS]
    """Epochs of each fit, where `steps_per_window` is null."""
    steps_per_window: Count | None
    """Steps of each fit, whatever the size of the window: epochs are repeated as needed and the
    last one is cut. null: `epochs` decides."""
    batch_size: Annotated[Count, NETWORKS_AND_PLUGINS]
    """Sessions per step over all processes together."""
    optimizer: Literal["adamw", "adagrad"]
    """adagrad: with momentum, as GRU4Rec is trained; it needs a higher rate (.05 to .2)."""
    learning_rate: Positive
    """Peak learning rate."""
    schedule: Literal["linear", "constant", "cosine"]
    """Learning rate over a window's steps; it restarts with each window. As transformers'
    get_{linear,constant,cosine}_schedule_with_warmup."""
    cosine_cycles: Annotated[Positive, ReadIf(lambda p: p.training.schedule == "cosine")]
    """Cycles of `cosine` in a window: 0.5 falls to 0 once, 1.5 rises again and falls once more."""
    warmup_steps: CountOrZero
    """Steps of each window in which the learning rate rises from 0."""
    weight_decay: Annotated[NonNegative, _optimizer("adamw")]
    """Of adamw; biases, norms and the mask are not decayed."""
    momentum: Annotated[Fraction, _optimizer("adagrad")]
    """Of adagrad: share of a row's last step that is added to its next one."""
    max_grad_norm: Positive
    """Gradients are clipped to this norm."""
    length_groups: Size
    """Most groups of similar length in which a batch goes through the backbone, to save padding. On
    a CPU most transformers are trained on rows packed with several sessions, and have no groups."""
    loader: Annotated[Literal["memory", "stream"], EVERY_MODEL]
    """stream reads the sessions of a window from disk as they are needed, if they are larger than
    memory. A window with ticks (`live.tick`) is counted in memory all the same."""
    precision: Literal["auto", "float32", "bfloat16"]
    """Of the matrix products of a fit; auto: bfloat16 where the device has instructions for it.
    Scores are always float32, and so are recurrent architectures on a GPU."""
    fit_last: bool
    """Whether the last evaluated window is fitted on too: the model that tomorrow starts from."""
    seed: Annotated[Seed, EVERY_MODEL]  # it samples the train sessions evaluated, too
    """Of initial weights, order, dropout, masks and negatives."""

    def __post_init__(self) -> None:
        """Check that some step reaches the learning rate."""
        if self.steps_per_window is not None and self.warmup_steps >= self.steps_per_window:
            raise ValueError(
                f"warmup_steps ({self.warmup_steps}) must be below steps_per_window "
                f"({self.steps_per_window}), or no step reaches learning_rate"
            )

    @property
    def starts_afresh(self) -> bool:
        """Whether every fit starts from a fresh model."""
        is_sliding = self.protocol == "sliding"
        return self.protocol == "from_scratch" or (is_sliding and not self.carry_model)


@dataclass(frozen=True, kw_only=True, config=STRICT)
class EvaluationConfig:
    """What is evaluated, among which candidates."""

    split: Literal["valid", "test", "all"]
    """Sessions evaluated on: tune on valid, report on test; all: the whole window."""
    candidates: Literal["seen", "known", "all"]
    """Items in train sessions up to the fitted window, with `live.tick` those counted since too;
    those that the model knows by then, which a table of items may list before anyone clicks them;
    or the whole catalogue of the log."""
    positions: Literal["last", "all"]
    """Targets: a session's last item, or every item after its first. Each target is predicted from
    the items before it; metrics are means over targets."""
    train_sessions: CountOrZero
    """Train sessions of the newest fitted window, sampled by the seed, that are evaluated too
    (columns train_<metric>); 0: none."""
    predictions: CountOrZero
    """Highest-scored candidates written with their scores for every target (results/predictions/);
    0: none. They are held in memory for a whole window."""
    lists: Annotated[int, Field(ge=0, le=1000)]
    """Highest-scored candidates of every target that are counted as the list that would be shown:
    coverage, novelty and others at each of the cutoffs up to it (results/lists.csv); 0: none."""
    attention_of: tuple[str, ...]
    """Ids of evaluated sessions whose attention weights are written (results/attention/), of the
    pass that scores their last item."""
    cutoffs: Annotated[tuple[Count, ...], Field(min_length=1)]
    """Cutoffs k of recall@k, NDCG@k and MRR@k."""
    metrics: Annotated[tuple[str, ...], AfterValidator(known_metrics)]
    """Metrics of other packages beside these, by the names of their entry points, at the same
    cutoffs. `train` evaluates as without them."""
    batch_size: Count
    """Sessions scored at once over all processes together; with `positions: all`, targets."""

    @property
    def ranks_new_items(self) -> bool:
        """Whether items are candidates before anyone has clicked them."""
        return self.candidates != "seen"


@dataclass(frozen=True, kw_only=True, config=STRICT)
class TrackingConfig:
    """What is recorded, and in which trackers."""

    sinks: tuple[Literal["mlflow", "tensorboard", "wandb"], ...]
    """Trackers that get the records: mlflow all of them; tensorboard and wandb parameters and
    metrics. A change runs `aggregate` again and changes no result."""
    experiment: str
    """Name of the MLflow experiment, and of the project in W&B."""
    log_model: bool
    """Whether the model is logged, with the code that serves it."""

    def __post_init__(self) -> None:
        """Check that no tracker gets the records twice."""
        if len({*self.sinks}) < len(self.sinks):
            raise ValueError(f"sinks: {', '.join(self.sinks)}: name each tracker once")


@dataclass(frozen=True, kw_only=True, config=STRICT)
class WindowSections:
    """What windows are made of."""

    dataset: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+$")]
    window: WindowConfig
    preprocess: PreprocessConfig


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Params(ModelSections, WindowSections):
    """The whole of params.yaml; fields of the last base come first, as in the file."""

    training: TrainingConfig
    evaluation: EvaluationConfig
    compute: ComputeConfig
    machine: MachineConfig
    profile: ProfileConfig
    tracking: TrackingConfig
    nightly: NightlyConfig

    @property
    def has_ticks(self) -> bool:
        """Whether the model counts clicks within a window."""
        return self.model.architecture == MEMORY and self.live.tick != 0

    @property
    def limits_network(self) -> bool:
        """Whether `memory.network_steps` is read: the network of `memory` has epochs of its own."""
        has_network = self.model.architecture == MEMORY and self.model.has_network
        has_epochs = self.training.steps_per_window is None and not self.memory.end_to_end
        return has_network and has_epochs

    @property
    def most_steps(self) -> int | None:
        """Steps that the epochs of a network are cut to; None: they are not cut."""
        return self.memory.network_steps if self.limits_network else None

    def network_steps(self, n_sessions: int) -> int:
        """Return the steps of a network's fit on this many sessions."""
        return self._steps(n_sessions, self.most_steps)

    def early_network_steps(self, n_sessions: int) -> int:
        """Return those of the copy that the head of `memory` learns with in the first fit."""
        most = self.memory.early_network_steps if self.limits_network else None
        return self._steps(n_sessions, most)

    def _steps(self, n_sessions: int, most: int | None) -> int:
        n_steps = -(-n_sessions // self.training.batch_size) * self.training.epochs
        return self.training.steps_per_window or min(n_steps, most or n_steps)


def load_params(path: Path = Path("params.yaml")) -> Params:
    """Read and check params.yaml.

    Raises:
        ConfigError: names every invalid setting, also of sections that do not go together.
    """
    return checked_params(read_yaml(path), str(path))


def checked_params(value: object, path: str) -> Params:
    """Check the content of params.yaml, called `path` in messages.

    Raises:
        ConfigError: as `load_params`.
    """
    params = validated(Params, value, path)
    if params.evaluation.candidates == "all" and params.model.catalogue == "grow":
        raise ConfigError(
            f"{path}: evaluation.candidates: all ranks over every item of the log, and "
            f"model.catalogue: grow knows only those seen so far; set model.catalogue to full or "
            f"evaluation.candidates to seen or known"
        )
    training, architecture = params.training, params.model.architecture
    if training.protocol == "sliding" and training.carry_model and adds_fits(architecture):
        raise ConfigError(
            f"{path}: training.protocol: sliding fits on each window several times, and "
            f"{architecture} would count its sessions as often; set training.carry_model to false, "
            f"or training.protocol to incremental"
        )
    if params.compute.shard_items and architecture == MEMORY and params.model.has_network:
        raise ConfigError(
            f"{path}: compute.shard_items: memory needs its network whole on every process; set it "
            f"to false, model.network to none, or model.architecture to a network such as gpt2"
        )
    most_steps = params.most_steps
    if most_steps is not None and params.training.warmup_steps >= most_steps:
        raise ConfigError(
            f"{path}: training.warmup_steps ({params.training.warmup_steps}) must be below "
            f"memory.network_steps ({most_steps}), or no step reaches learning_rate"
        )
    if params.memory.end_to_end and not (architecture == MEMORY and params.model.has_network):
        raise ConfigError(
            f"{path}: memory.end_to_end fits the network of memory by the head's loss, and there "
            f"is none; set it to false, or model.architecture to memory and model.network to a "
            f"network such as gpt2"
        )
    return params


def flat_settings(params: Params) -> dict[str, Any]:
    """Return the study's settings as DVC and MLflow name them: {"model.n_layer": 2, ...}.

    The sections OUTSIDE it are left out.
    """
    sections = asdict(params)
    return flattened({name: each for name, each in sections.items() if name not in OUTSIDE})
