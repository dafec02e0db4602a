"""params.yaml as frozen dataclasses, one per section.

No field has a default: a default in code would be a parameter that DVC cannot see.
"""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from dayahead.config.baselines import BASELINES, MEMORY, TIMED, LinearConfig, NeighbourConfig
from dayahead.config.loading import (
    STRICT,
    Count,
    CountOrZero,
    FiniteMapping,
    NonNegative,
    Positive,
    Seed,
    Size,
    SizeOrZero,
    TimeZone,
    read_yaml,
    validated,
)
from dayahead.config.machine import ComputeConfig, MachineConfig
from dayahead.config.memory import MemoryConfig
from dayahead.core.errors import ConfigError

Fraction = Annotated[float, Field(ge=0, lt=1)]

SMOOTHED = ("softmax", "sampled_softmax")
NO_NETWORK = "none"
CALENDAR_LENGTHS = {
    "day": (1, 7),
    "hour": (1, 2, 3, 4, 6, 8, 12, 24),
    "minute": (1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30, 60),
}
"""Lengths of calendar windows by unit: they divide the week, the day (UTC) and the hour."""
_PERIODS = {"day": "week", "hour": "day", "minute": "hour"}


@dataclass(frozen=True, kw_only=True, config=STRICT)
class WindowConfig:
    """Length and origin of a window, and which windows take part."""

    unit: Literal["day", "hour", "minute"]
    """Unit of a window's length."""
    length: Annotated[int, Field(ge=1, le=1440)]
    """Units per window: 15 with unit minute is a quarter of an hour. With origin calendar it
    divides the hour (minute) or the day (hour), or is 7: weeks from Monday (day)."""
    origin: Literal["calendar", "first_session"]
    """Where windows start: at midnight, the full hour and every length from there; or every length
    since the first session."""
    timezone: TimeZone
    """IANA time zone of day windows and time features. Hours and minutes are always cut and named
    in UTC."""
    first: str | None
    """Name of the first window fitted on (2019-10-01, 2019-10-01T13 or 2019-10-01T1304); null: the
    first."""
    last: str | None
    """Name of the last window evaluated; null: the last."""
    min_sessions: Count
    """Windows with fewer sessions are dropped and listed."""
    overrun: Literal["cut", "keep"]
    """Events at or after the window's end plus grace: dropped and counted, or kept (the paper)."""
    grace: Annotated[int, Field(ge=0, le=5_256_000)]
    """Minutes after a window's end in which its sessions may still go on. With overrun: cut these
    clicks, of the time of the next window, are evaluated but not trained on."""

    def __post_init__(self) -> None:
        """Check that calendar windows begin at the same times in every period."""
        lengths, period = CALENDAR_LENGTHS[self.unit], _PERIODS[self.unit]
        if self.origin == "calendar" and self.length not in lengths:
            raise ValueError(
                f"length ({self.length} {self.unit}s): windows of the calendar begin at the same "
                f"times in every {period}, so expected one of {', '.join(map(str, lengths))}; take "
                f"one of these, or set origin to first_session"
            )


@dataclass(frozen=True, kw_only=True, config=STRICT)
class PreprocessConfig:
    """How the event log becomes window files."""

    device: Literal["auto", "cpu", "cuda"]
    """cuda needs RAPIDS; auto: cuda where a GPU and cudf are found."""
    fit_windows: Count
    """Initial windows whose train sessions features are fitted on; they are never evaluated."""
    rebuild: bool
    """Whether rows that arrive for windows already written rewrite them; false: an error."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class ModelConfig:
    """The architecture and its sizes."""

    architecture: Annotated[str, Field(min_length=1)]
    """gpt2, xlnet, bert, albert, electra, longformer, reformer or any model type of transformers
    that reads `inputs_embeds`; gru, gru4rec, lstm, rnn; avg; or a baseline: popularity,
    transitions, cooccurrence, sknn, vsknn, stan, vstan, slis, slit, slist; memory."""
    network: Annotated[str, Field(min_length=1)]
    """memory: the architecture whose scores are evidence too, any of those before the baselines;
    none: memory alone."""
    config: FiniteMapping
    """Further fields of the transformers configuration, by their names there."""
    catalogue: Literal["grow", "full"]
    """Items known at window i: those seen up to it, or every item of the log's kept windows (the
    paper); then a longer log changes all results."""
    features: tuple[str, ...]
    """Side features fed beside the item id, by their names in the data set's file."""
    past_length: SizeOrZero
    """How many of the user's events before the session the model reads (columns bef_...)."""
    d_model: Size
    """Width of the backbone."""
    n_layer: Annotated[int, Field(ge=1, le=1000)]
    """Layers of the backbone."""
    n_head: Size
    """Attention heads; d_model is a multiple of it."""
    item_embedding_dim: Size | None
    """Null: the same as d_model."""
    merge: Literal["concat", "elementwise"]
    """concat: item embedding and side features; elementwise: item * (1 + sum of side features)."""
    embedding_multiplier: Positive
    """A categorical feature's embedding has ceil(this * cardinality ** 0.25) dimensions."""
    number_dim: SizeOrZero
    """Dimensions of a number's embedding; 0: the number itself."""
    soft_one_hot: SizeOrZero
    """Embeddings in the soft one-hot encoding of a number; 0: a linear map of the number."""
    feature_norm: bool
    """Layer norm over each feature's vector (a bare number has none)."""
    activation: Literal["none", "tanh", "relu", "gelu"]
    """Activation after the projections into and out of the backbone."""
    dropout: Fraction
    """Dropout in the backbone."""
    input_dropout: Fraction
    """Dropout on the merged inputs, before their projection."""
    swap_noise: Fraction
    """Probability that an input item is replaced by one of the batch; targets are left alone."""
    unknown_rate: Fraction
    """Probability that an input item added since the last fit is read as unknown in training (with
    catalogue grow): so the model learns what follows an item that it does not know yet."""
    tie_weights: bool
    """Whether items are scored with the input embeddings; false: with a separate output table."""
    item_init_std: Positive
    """Initial standard deviation of the item embeddings."""
    feature_init_std: Positive
    """Initial standard deviation of the side features' embeddings and of `soft_one_hot`'s."""
    init_std: Positive
    """The same of the backbone and the mask; projections, gru, lstm and rnn start as in torch."""
    pretrained_items: str | None
    """Parquet file of item vectors (value, vector), instead of random ones where it has one."""
    freeze_items: bool
    """Keep the item embeddings as they are at the start."""
    decay: Annotated[float, Field(ge=0, le=1)]
    """Factor on the counts of `transitions` and `cooccurrence` from fit to fit."""

    @property
    def has_dropout(self) -> bool:
        """Whether there is dropout, before the backbone or in it."""
        given = (value for name, value in self.config.items() if "drop" in name)
        return any([self.dropout, self.input_dropout, *given])

    def __post_init__(self) -> None:
        """Check that the network is one."""
        if self.network in {*BASELINES, MEMORY}:
            raise ValueError(f"network: {self.network} is none: name one, such as gpt2, or none")

    @property
    def has_network(self) -> bool:
        """Whether there is a network, trained by `task`, `loss` and `training`."""
        if self.architecture == MEMORY:
            return self.network != NO_NETWORK
        return self.architecture not in BASELINES

    def of_network(self) -> "ModelConfig":
        """Return the settings of the network alone."""
        return replace(self, architecture=self.network) if self.architecture == MEMORY else self

    @property
    def item_dim(self) -> int:
        """Size of an item's vector."""
        return self.item_embedding_dim or self.d_model


@dataclass(frozen=True, kw_only=True, config=STRICT)
class TaskConfig:
    """The training task."""

    name: Literal["clm", "mlm", "plm", "rtd"]
    """clm: the next item, causally; mlm: masked items; plm: items in a random order (XLNet); rtd:
    which items a generator replaced (ELECTRA)."""
    mlm_probability: Annotated[float, Field(gt=0, lt=1)]
    """Probability of an item to be masked (mlm, rtd)."""
    plm_probability: Annotated[float, Field(gt=0, lt=1)]
    """Share of a session's items that are predicted."""
    plm_max_span: Size
    """Longest stretch of neighbours predicted together."""
    rtd_replacements: Literal["batch", "catalogue"]
    """What the generator samples from: the items masked in the batch, or all known items."""
    rtd_generator_weight: Positive
    """Weight of the generator's loss."""
    rtd_discriminator_weight: Positive
    """Weight of the discriminator's loss."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class LossConfig:
    """The training loss."""

    name: Literal["softmax", "sampled_softmax", "gbce", "bpr", "bpr_max", "top1", "top1_max"]
    """softmax: over all known items; the others: against negatives."""
    temperature: Positive
    """Scores are divided by it, in training and in evaluation alike."""
    label_smoothing: Fraction
    """Only for softmax and sampled_softmax: pairwise and binary losses have nothing to smooth."""
    negatives: CountOrZero
    """Items sampled for each step, beside those of the batch."""
    negatives_of_batch: bool
    """Whether other targets of the global batch are negatives too."""
    popularity_exponent: Annotated[float, Field(ge=0, le=1)]
    """Negatives are sampled by (1 + how often they are targets of the sessions fitted on) to this
    power: 0 uniformly, 1 by popularity."""
    gbce_calibration: Annotated[float, Field(ge=0, le=1)]
    """t of gBCE: 0 is plain binary cross entropy, 1 undoes the sampling (Petrov 2023)."""
    logq: Annotated[float, Field(ge=0, le=1)]
    """Strength of sampled_softmax's correction for how often a negative is expected: 0 none."""
    bpr_max_regularisation: NonNegative
    """Weight of the score regularization of bpr_max (Hidasi and Karatzoglou 2018)."""
    elu: NonNegative
    """bpr_max: scores below 0 become elu * (exp(score) - 1); 0: they stay as they are."""
    logits_budget_mib: Annotated[int, Field(ge=1, le=1 << 20)]
    """Logits are computed in chunks of this size (or of the item table's, where that is larger) and
    never held whole. 32 fits a CPU's cache, which is faster than one large chunk; on a GPU larger
    chunks are faster."""

    def __post_init__(self) -> None:
        """Check that the settings go together."""
        if self.is_sampled and not (self.negatives or self.negatives_of_batch):
            raise ValueError(
                f"{self.name} needs negatives, and there are none: set negatives above 0 "
                f"or negatives_of_batch to true, or name to softmax"
            )
        if self.label_smoothing and self.name not in SMOOTHED:
            raise ValueError(
                f"label_smoothing ({self.label_smoothing}) smooths a distribution over the "
                f"catalogue, and {self.name} has none: set label_smoothing to 0, or name to "
                f"{' or '.join(SMOOTHED)}"
            )

    @property
    def is_sampled(self) -> bool:
        """Whether a target is compared with negatives instead of all items."""
        return self.name != "softmax"


@dataclass(frozen=True, kw_only=True, config=STRICT)
class TrainingConfig:
    """The protocol over windows and the steps within one."""

    protocol: Literal["incremental", "sliding", "from_scratch"]
    """incremental: one model is carried on and fitted on each window; sliding: it is fitted on the
    last `history` windows; from_scratch: a fresh model is fitted on all windows so far. Baselines
    count the same windows once. The candidates `seen` are always the items of all windows so
    far."""
    history: Count
    """Windows that `sliding` fits on, the newest included; fewer at the start of a log."""
    carry_model: bool
    """Whether `sliding` carries the model on; false: each fit starts from the same fresh model."""
    carry_optimizer: bool
    """Whether the optimizer state is carried on too; false: it restarts at each window."""
    epochs: Annotated[int, Field(ge=1, le=10_000)]
    """Epochs of each fit, where `steps_per_window` is null."""
    steps_per_window: Count | None
    """Steps of each fit, whatever the size of the window: epochs are repeated as needed and the
    last one is cut. null: `epochs` decides."""
    batch_size: Count
    """Sessions per step over all processes together."""
    optimizer: Literal["adamw", "adagrad"]
    """adagrad: with momentum, as GRU4Rec is trained; it needs a higher rate (.05 to .2)."""
    learning_rate: Positive
    """Peak learning rate."""
    schedule: Literal["linear", "constant", "cosine"]
    """Learning rate over a window's steps; it restarts with each window. As transformers'
    get_{linear,constant,cosine}_schedule_with_warmup."""
    cosine_cycles: Positive
    """Cycles of `cosine` in a window: 0.5 falls to 0 once, 1.5 rises again and falls once more."""
    warmup_steps: CountOrZero
    """Steps of each window in which the learning rate rises from 0."""
    weight_decay: NonNegative
    """Of adamw; biases, norms and the mask are not decayed."""
    momentum: Fraction
    """Of adagrad: share of a row's last step that is added to its next one."""
    max_grad_norm: Positive
    """Gradients are clipped to this norm."""
    length_groups: Size
    """Groups of similar length in which a batch goes through the backbone, to save padding."""
    loader: Literal["memory", "nvtabular"]
    """nvtabular streams windows from disk (merlin-dataloader), if they are larger than memory."""
    precision: Literal["auto", "float32", "bfloat16"]
    """Of the matrix products of a fit; auto: bfloat16 where the device has instructions for it.
    Scores are always float32."""
    fit_last: bool
    """Whether the last evaluated window is fitted on too: the model that tomorrow starts from."""
    seed: Seed
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
    candidates: Literal["seen", "all"]
    """Items in train sessions up to the fitted window, or the whole catalogue of the log."""
    positions: Literal["last", "all"]
    """Targets: a session's last item, or every item after its first. Each target is predicted from
    the items before it; metrics are means over targets."""
    train_sessions: CountOrZero
    """Train sessions of the newest fitted window, sampled by the seed, that are evaluated too
    (columns train_<metric>); 0: none."""
    predictions: CountOrZero
    """Highest-scored candidates written with their scores for every target (results/predictions/);
    0: none. They are held in memory for a whole window."""
    attention_of: tuple[str, ...]
    """Ids of evaluated sessions whose attention weights are written (results/attention/), of the
    pass that scores their last item."""
    cutoffs: Annotated[tuple[Count, ...], Field(min_length=1)]
    """Cutoffs k of recall@k, NDCG@k and MRR@k."""
    batch_size: Count
    """Sessions scored at once over all processes together; with `positions: all`, targets."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class TrackingConfig:
    """What is sent to MLflow."""

    experiment: str
    """Name of the MLflow experiment."""
    log_model: bool
    """Whether the model is logged, with the code that serves it."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Params:
    """The whole of params.yaml."""

    dataset: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+$")]
    window: WindowConfig
    preprocess: PreprocessConfig
    model: ModelConfig
    task: TaskConfig
    loss: LossConfig
    neighbours: NeighbourConfig
    linear: LinearConfig
    memory: MemoryConfig
    training: TrainingConfig
    evaluation: EvaluationConfig
    compute: ComputeConfig
    machine: MachineConfig
    tracking: TrackingConfig

    def __post_init__(self) -> None:
        """Check that the sections go together."""
        if (
            self.compute.shard_items
            and self.model.architecture == MEMORY
            and self.model.has_network
        ):
            raise ValueError(
                "compute.shard_items: memory needs its network whole on every process: set it to "
                "false, or model.network to none"
            )


def load_params(path: Path = Path("params.yaml")) -> Params:
    """Read and check params.yaml.

    Raises:
        ConfigError: names every invalid setting, also of sections that do not go together.
    """
    params = validated(Params, read_yaml(path), str(path))
    if params.evaluation.candidates == "all" and params.model.catalogue == "grow":
        raise ConfigError(
            f"{path}: evaluation.candidates: all ranks over every item of the log, and "
            f"model.catalogue: grow knows only those seen so far; set model.catalogue to full or "
            f"evaluation.candidates to seen"
        )
    training, architecture = params.training, params.model.architecture
    if training.protocol == "sliding" and training.carry_model and architecture in TIMED:
        raise ConfigError(
            f"{path}: training.protocol: sliding fits on each window several times, and "
            f"{architecture} would count its sessions as often; set training.carry_model to false, "
            f"or training.protocol to incremental"
        )
    return params


def flat_settings(params: Params) -> dict[str, Any]:
    """Return the study's settings as DVC and MLflow name them: {"model.n_layer": 2, ...}.

    The section `machine` is left out, for it is no part of the study.
    """
    sections = asdict(params)
    del sections["machine"]
    flat = {"dataset": sections.pop("dataset")}
    for section, settings in sections.items():
        flat |= {f"{section}.{key}": value for key, value in settings.items()}
    return flat
