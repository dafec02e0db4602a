"""Settings of models: sections `model`, `task` and `loss` of params.yaml."""

from dataclasses import fields, replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field
from pydantic.dataclasses import dataclass

from dayahead.config.architectures import NO_NETWORK, known_architecture, known_network
from dayahead.config.baselines import (
    MEMORY,
    NETWORKS_AND_PLUGINS,
    NOT_BASELINES,
    REMINDED,
    LinearConfig,
    NeighbourConfig,
    is_baseline,
)
from dayahead.config.events import EventsConfig
from dayahead.config.live import LiveConfig
from dayahead.config.loading import (
    STRICT,
    Auto,
    CountOrZero,
    FiniteMapping,
    Fraction,
    NonNegative,
    Positive,
    Share,
    Size,
    SizeOrZero,
)
from dayahead.config.marks import EVERY_MODEL, NETWORKS, ReadIf, by
from dayahead.config.memory import MemoryConfig
from dayahead.core.errors import ConfigError
from dayahead.core.plugins import is_plugin, names_module, plugins
from dayahead.core.suggestions import did_you_mean

Remind = Literal["auto", "none", "score", "boost", "first"]
AUTO = "auto"
SOFTMAXES = ("softmax", "sampled_softmax")
LOSSES = (AUTO, *SOFTMAXES, "gbce", "bpr", "bpr_max", "top1", "top1_max")
AUTO_ITEMS = 20_000
"""Largest catalogue of the full softmax under `loss.name: auto`. There a step of the shipped
network takes 2.9 times as long as one of the sampled softmax."""
LOGITS_MIB, FLOAT32_SOFTMAX_MIB, GPU_SOFTMAX_MIB = 96, 12, 2048
"""What `logits_budget_mib: auto` is; and for the full softmax, where each chunk adds to a gradient
as large as the item table: on a CPU in float32 within the product, elsewhere in further passes.
In float32 two processes of a CPU share the cache that chunks should fit."""
GRU4REC = "gru4rec"
_BOOST = ReadIf(lambda p: p.model.remind == "boost")
_WITH_NEGATIVES = ReadIf(lambda p: p.loss.negatives > 0)
_SAMPLED = ReadIf(lambda p: p.loss.is_sampled)


@dataclass(frozen=True, kw_only=True, config=STRICT)
class ModelConfig:
    """The architecture and its sizes."""

    READ_BY: ClassVar = NETWORKS
    setting: ClassVar = "model.architecture"
    """The setting that names the network, for messages."""
    architecture: Annotated[str, AfterValidator(known_architecture), EVERY_MODEL]
    """gpt2, xlnet, bert, albert, electra, longformer, reformer or any model type of transformers
    that reads `inputs_embeds`; gru, gru4rec, lstm, rnn; ligr; avg; or a baseline: popularity,
    own, transitions, cooccurrence, sknn, vsknn, stan, vstan, slis, slit, slist; memory; or a
    backbone or a baseline of another package, by the name of its entry point, or of a file beside
    params.yaml, as module:name."""
    network: Annotated[str, AfterValidator(known_network), by(MEMORY)]
    """memory: the architecture whose scores are evidence too, any of those before the baselines;
    none: memory alone."""
    config: Annotated[FiniteMapping, NETWORKS_AND_PLUGINS]
    """Further fields of the transformers configuration, by their names there; the arguments of a
    baseline of another package."""
    catalogue: Annotated[Literal["grow", "full"], EVERY_MODEL]
    """Items known at window i: those seen up to it, or every item of the log's kept windows (the
    paper); then a longer log changes all results."""
    features: Annotated[tuple[str, ...], NOT_BASELINES]
    """Side features fed beside the item id, by their names in the data set's file."""
    past_length: Annotated[SizeOrZero, NOT_BASELINES]
    """User's events before the session that networks and memory read (columns bef_...)."""
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
    unknown_rate: Annotated[Fraction, ReadIf(lambda p: p.model.catalogue == "grow")]
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
    """Parquet file of item vectors (value, vector), or the name of a vector of the data set's items
    (items.vectors), instead of random ones where it has one."""
    freeze_items: bool
    """Keep the item embeddings as they are at the start."""
    decay: Annotated[
        Share, by("transitions", "cooccurrence"), ReadIf(lambda p: not p.training.starts_afresh)
    ]
    """Factor on the counts of `transitions` and `cooccurrence` from fit to fit."""
    remind: Annotated[Remind, REMINDED]
    """How baselines rank the items of the session itself. first: above all others, the latest ones
    first; score: as any item, those that no session had before below all; none: below all others;
    auto: first where at least 12 % of the sessions fitted on end with an item that they had before,
    none where less than 1 % do, else score, and for popularity score, as `own` puts them first;
    boost: their scores are raised by `remind_weight`.
    Items that the data set's rule for repeats rules out as the next one are never raised."""
    remind_weight: Annotated[Positive, REMINDED, _BOOST]
    """boost: what is added for the session's last item, where the best item's score is 1."""
    remind_scale: Annotated[Positive, REMINDED, _BOOST]
    """boost: decay constant of what is added, in events from the session's end."""

    @property
    def has_dropout(self) -> bool:
        """Whether there is dropout, before the backbone or in it."""
        given = (value for name, value in self.config.items() if "drop" in name)
        return any([self.dropout, self.input_dropout, *given])

    def __post_init__(self) -> None:
        """Check that the network is one."""
        if self.network == MEMORY or is_baseline(self.network):
            raise ValueError(f"network: {self.network} is none: name one, such as gpt2, or none")

    @property
    def has_network(self) -> bool:
        """Whether there is a network, trained by `task`, `loss` and `training`."""
        if self.architecture == MEMORY:
            return self.network != NO_NETWORK
        return not is_baseline(self.architecture)

    @property
    def n_past_read(self) -> int:
        """Past events read before a session; baselines read none."""
        return 0 if is_baseline(self.architecture) else self.past_length

    def of_network(self) -> "ModelConfig":
        """Return the settings of the network alone, if memory has one.

        Inside memory gru4rec reads item ids alone.
        """
        if self.architecture != MEMORY or not self.has_network:
            return self
        alone = _NetworkOfMemory(**vars(self) | {"architecture": self.network})
        if self.network != GRU4REC:
            return alone
        return replace(alone, features=(), merge="concat", number_dim=0, soft_one_hot=0)

    @property
    def item_dim(self) -> int:
        """Size of an item's vector."""
        return self.item_embedding_dim or self.d_model


def _task(*names: str) -> ReadIf:
    return ReadIf(lambda p: p.task.name in names)


@dataclass(frozen=True, kw_only=True, config=STRICT)
class _NetworkOfMemory(ModelConfig):
    setting: ClassVar = "model.network"


@dataclass(frozen=True, kw_only=True, config=STRICT)
class TaskConfig:
    """The training task."""

    READ_BY: ClassVar = NETWORKS
    name: Literal["clm", "mlm", "plm", "rtd"]
    """clm: the next item, causally; mlm: masked items; plm: items in a random order (XLNet); rtd:
    which items a generator replaced (ELECTRA)."""
    mlm_probability: Annotated[float, Field(gt=0, lt=1), _task("mlm", "rtd")]
    """Probability of an item to be masked (mlm, rtd)."""
    plm_probability: Annotated[float, Field(gt=0, lt=1), _task("plm")]
    """Share of a session's items that are predicted."""
    plm_max_span: Annotated[Size, _task("plm")]
    """Longest stretch of neighbours predicted together."""
    rtd_replacements: Annotated[Literal["batch", "catalogue"], _task("rtd")]
    """What the generator samples from: the items masked in the batch, or all known items."""
    rtd_generator_weight: Annotated[Positive, _task("rtd")]
    """Weight of the generator's loss."""
    rtd_discriminator_weight: Annotated[Positive, _task("rtd")]
    """Weight of the discriminator's loss."""


def _loss(*names: str) -> ReadIf:
    """Return the mark of a setting of some losses; those of other packages get all settings."""
    return ReadIf(lambda p: p.loss.name in names or p.loss.is_packaged)


def _loss_name(name: str) -> str:
    try:
        is_known = name in LOSSES or is_plugin("loss", name)
    except ConfigError as error:
        raise ValueError(str(error)) from None
    if names_module(name) and not is_known:
        raise ValueError(f"{name}: expected a function of (scores, config), found a class")
    if not is_known:
        known = [*LOSSES, *plugins("loss")]
        close = did_you_mean(name, known)
        raise ValueError(
            f"{f'{close} ' if close else ''}expected one of {', '.join(known)}, the entry point of "
            f"an installed package, or module:name of a file beside params.yaml"
        )
    return name


@dataclass(frozen=True, kw_only=True, config=STRICT)
class LossConfig:
    """The training loss."""

    READ_BY: ClassVar = NETWORKS
    name: Annotated[str, AfterValidator(_loss_name)]
    """softmax: over all known items; against negatives: sampled_softmax, gbce, bpr, bpr_max, top1,
    top1_max; or a loss of another package, by the name of its entry point, or of a file beside
    params.yaml, as module:name. auto: softmax in fits
    that know up to 20,000 items, sampled_softmax, then faster by far, in those that know more."""
    temperature: Positive
    """Scores are divided by it, in training and in evaluation alike."""
    label_smoothing: Fraction
    """Only for softmaxes, full or sampled: pairwise and binary losses have nothing to smooth."""
    negatives: Annotated[CountOrZero, _SAMPLED]
    """Items sampled for each step, beside those of the batch."""
    negatives_of_batch: Annotated[bool, _SAMPLED]
    """Whether other targets of the global batch are negatives too."""
    popularity_exponent: Annotated[Share, _SAMPLED, _WITH_NEGATIVES]
    """Negatives are sampled by (1 + how often they are targets of the sessions fitted on) to this
    power: 0 uniformly, 1 by popularity."""
    gbce_calibration: Annotated[Share, _loss("gbce")]
    """t of gBCE: 0 is plain binary cross entropy, 1 undoes the sampling (Petrov 2023)."""
    logq: Annotated[Share, _loss(AUTO, "sampled_softmax")]
    """Strength of sampled_softmax's correction for how often a negative is expected: 0 none."""
    bpr_max_regularisation: Annotated[NonNegative, _loss("bpr_max")]
    """Weight of the score regularization of bpr_max (Hidasi and Karatzoglou 2018)."""
    elu: Annotated[NonNegative, _loss("bpr_max")]
    """bpr_max: scores below 0 become elu * (exp(score) - 1); 0: they stay as they are."""
    logits_budget_mib: Auto | Annotated[int, Field(ge=1, le=1 << 20)]
    """Logits are computed in chunks of this size (or of the item table's, where that is larger) and
    never held whole. auto: for the softmax 2048 on a GPU, which holds up to 1.5 times that, and 12
    on a CPU in float32; otherwise 96. On a CPU with 20,000 items, 96 takes 4 to 15 % more time than
    12 in float32; with 100,000 it takes 7 % less in bfloat16."""

    def __post_init__(self) -> None:
        """Check that the settings go together."""
        if self.is_sampled and not (self.negatives or self.negatives_of_batch):
            raise ValueError(
                f"{self.name} needs negatives, and there are none: set negatives above 0 "
                f"or negatives_of_batch to true, or name to softmax"
            )
        if self.label_smoothing and self.name not in (AUTO, *SOFTMAXES):
            raise ValueError(
                f"label_smoothing ({self.label_smoothing}) smooths a distribution over the "
                f"catalogue, and {self.name} has none: set label_smoothing to 0, or name to "
                f"{' or '.join(SOFTMAXES)}"
            )

    @property
    def is_packaged(self) -> bool:
        """Whether another package has it."""
        return self.name not in LOSSES

    @property
    def logits_mib(self) -> int:
        """Size of a chunk of logits."""
        return LOGITS_MIB if self.logits_budget_mib == "auto" else self.logits_budget_mib

    def softmax_mib(self, device_type: str, *, in_bfloat16: bool) -> int:
        """Size of a chunk of logits of the full softmax on this kind of device."""
        if self.logits_budget_mib != "auto":
            return self.logits_budget_mib
        if device_type == "cuda":
            return GPU_SOFTMAX_MIB
        return LOGITS_MIB if in_bfloat16 else FLOAT32_SOFTMAX_MIB

    @property
    def is_sampled(self) -> bool:
        """Whether a target may be compared with negatives instead of all items."""
        return self.name != "softmax"

    def at_size(self, n_items: int) -> "LossConfig":
        """Return the loss of a fit that knows this many items: what `auto` stands for there."""
        if self.name != AUTO:
            return self
        return replace(self, name="softmax" if n_items <= AUTO_ITEMS else "sampled_softmax")


@dataclass(frozen=True, kw_only=True, config=STRICT)
class ModelSections:
    """The sections that models are built from, of params.yaml or of a saved model's config.json."""

    model: ModelConfig
    task: TaskConfig
    loss: LossConfig
    neighbours: NeighbourConfig
    linear: LinearConfig
    memory: MemoryConfig
    live: LiveConfig
    events: EventsConfig

    def sections(self) -> dict[str, Any]:
        """Return each of them by its name."""
        return {each.name: getattr(self, each.name) for each in fields(ModelSections)}


FITTED = (*(each.name for each in fields(ModelSections) if each.name != "events"), "training")
"""Sections that say how models are fitted, which a search may change: the others
say what is evaluated, on what, and on which machine."""
