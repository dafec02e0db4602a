"""params.yaml as frozen dataclasses, one per section.

No field has a default: a default in code is a parameter DVC cannot see.
"""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from dayahead.config.reading import STRICT, read_yaml, validated
from dayahead.errors import ConfigError

PositiveInt = Annotated[int, Field(gt=0)]
PositiveFloat = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(ge=0, lt=1)]
Auto = Literal["auto"]

CAUSAL_ONLY = ("gpt2",)
COUNTED = ("popularity", "transitions")


@dataclass(frozen=True, kw_only=True, config=STRICT)
class WindowConfig:
    """Which stretch of time a window is, and which windows take part."""

    unit: Literal["day", "hour"]
    origin: Literal["calendar", "first_session"]
    """Where windows begin: at midnight or the full hour, or every unit since the first session."""
    timezone: str
    """IANA name; moves days and time features. Hours are always cut and named in UTC."""
    first: str | None
    """Name of the first window trained on (2019-10-01 or 2019-10-01T13); null: the first."""
    last: str | None
    """Name of the last window measured; null: the last."""
    min_sessions: PositiveInt
    """Windows with fewer sessions are dropped and listed."""
    overrun: Literal["cut", "keep"]
    """Events at or after the window's end plus grace: dropped and counted, or kept (the paper)."""
    grace: Annotated[int, Field(ge=0)]
    """Minutes after a window's end in which its sessions may still go on."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class PreprocessConfig:
    """How the event log becomes window files."""

    device: Literal["auto", "cpu", "cuda"]
    workers: PositiveInt | Auto
    """Dask workers; auto: one per GPU, or one per two cores."""
    scheduler: str | None
    """Address of a running Dask scheduler; null: a cluster of our own."""
    memory_limit: str
    """Per worker, as Dask writes it (4GiB)."""
    fit_windows: PositiveInt
    """Windows whose train sessions give means and deviations; they are never measured."""
    rebuild: bool
    """Whether rows that arrive for windows already written rewrite these (else: an error)."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class ModelConfig:
    """The architecture and its sizes."""

    architecture: Literal["gpt2", "xlnet", "bert", "popularity", "transitions"]
    catalogue: Literal["grow", "full"]
    """Items held at window i: those seen up to it, or every item of the log's standing windows (the
    paper); then a longer log changes all results."""
    features: tuple[str, ...]
    """Side features fed beside the item id, by their names in the data set's file."""
    d_model: PositiveInt
    n_layer: PositiveInt
    n_head: PositiveInt
    item_embedding_dim: PositiveInt | None
    """Null: the same as d_model."""
    dropout: Share
    input_dropout: Share
    tie_weights: bool
    """Score with the input item table, or with one of its own."""
    item_init_std: PositiveFloat
    """Standard deviation of a new row of the item table."""
    init_std: PositiveFloat
    """Standard deviation of the other weights."""
    decay: Annotated[float, Field(ge=0, le=1)]
    """What `transitions` keeps of its counts from window to window."""

    def __post_init__(self) -> None:
        """Refuse sizes that do not fit together."""
        if self.d_model % self.n_head:
            raise ValueError(
                f"d_model ({self.d_model}) must be a multiple of n_head ({self.n_head})"
            )

    @property
    def is_counted(self) -> bool:
        """Whether the architecture counts events instead of following gradients."""
        return self.architecture in COUNTED


@dataclass(frozen=True, kw_only=True, config=STRICT)
class TaskConfig:
    """What the model is asked while it trains."""

    name: Literal["clm", "mlm"]
    mlm_probability: Annotated[float, Field(gt=0, lt=1)]


@dataclass(frozen=True, kw_only=True, config=STRICT)
class LossConfig:
    """Full softmax over the catalogue held."""

    label_smoothing: Share
    logits_budget_mib: PositiveInt
    """Logits are computed in chunks of this size and never held whole. 32 stays in a CPU's cache,
    which makes it faster than one large chunk; on a GPU larger chunks pay."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class TrainingConfig:
    """The protocol over windows and the steps within one."""

    protocol: Literal["incremental"]
    epochs: PositiveInt
    batch_size: PositiveInt
    """Sessions per step over all processes together."""
    learning_rate: PositiveFloat
    schedule: Literal["linear", "constant"]
    """Course of the learning rate within a window; it restarts with each."""
    weight_decay: Annotated[float, Field(ge=0)]
    max_grad_norm: PositiveFloat
    length_groups: PositiveInt
    """Parts of like length in which a batch goes through the body, so that little is padding."""
    loader: Literal["memory", "nvtabular"]
    precision: Literal["auto", "float32", "bfloat16"]
    """Of the fit's matrix products; auto: bfloat16 where the device is good at it. Scores are
    float32 always."""
    fit_last: bool
    """After the last measurement fit on that window too: what tomorrow starts from."""
    seed: Annotated[int, Field(ge=0)]


@dataclass(frozen=True, kw_only=True, config=STRICT)
class EvaluationConfig:
    """What is measured, against which candidates."""

    split: Literal["valid", "test", "all"]
    candidates: Literal["seen", "all"]
    """Items in train sessions up to the fitted window, or the whole catalogue of the log."""
    cutoffs: Annotated[tuple[PositiveInt, ...], Field(min_length=1)]
    batch_size: PositiveInt


@dataclass(frozen=True, kw_only=True, config=STRICT)
class ComputeConfig:
    """Processes, threads and devices."""

    processes: PositiveInt | Auto
    """auto: one per GPU, one on the CPU."""
    threads: PositiveInt | Auto
    """Threads per process, never inherited; auto: the cores divided by the processes."""
    device: Literal["auto", "cpu", "cuda"]


@dataclass(frozen=True, kw_only=True, config=STRICT)
class TrackingConfig:
    """What MLflow is told."""

    experiment: str
    log_model: bool


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Params:
    """The whole of params.yaml."""

    dataset: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+$")]
    window: WindowConfig
    preprocess: PreprocessConfig
    model: ModelConfig
    task: TaskConfig
    loss: LossConfig
    training: TrainingConfig
    evaluation: EvaluationConfig
    compute: ComputeConfig
    tracking: TrackingConfig


def load_params(path: Path = Path("params.yaml")) -> Params:
    """Read and check params.yaml.

    Raises:
        ConfigError: naming every fault, also of sections that do not fit together.
    """
    params = validated(Params, read_yaml(path), str(path))
    if faults := _misfits(params):
        raise ConfigError("\n".join(f"{path}: {fault}" for fault in faults))
    return params


def _misfits(params: Params) -> list[str]:
    faults = []
    if params.model.architecture in CAUSAL_ONLY and params.task.name == "mlm":
        faults.append(
            f"task.name: mlm needs a body that looks both ways, and {params.model.architecture} "
            f"sees the past only; set task.name to clm or model.architecture to bert or xlnet"
        )
    if params.evaluation.candidates == "all" and params.model.catalogue == "grow":
        faults.append(
            "evaluation.candidates: all ranks over every item of the log, and model.catalogue: "
            "grow holds only those seen so far; set model.catalogue to full or "
            "evaluation.candidates to seen"
        )
    return faults


def flattened(params: Params) -> dict[str, Any]:
    """Spread the sections out as DVC and MLflow name them: {"model.n_layer": 2, ...}."""
    flat: dict[str, Any] = {}
    for section, value in asdict(params).items():
        if isinstance(value, dict):
            flat |= {f"{section}.{key}": setting for key, setting in value.items()}
        else:
            flat[section] = value
    return flat
