"""Models from settings: networks, memory and baselines, by the name of their architecture."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from dayahead.config.baselines import (
    ALWAYS_FIRST,
    LINEAR,
    MEMORY,
    NEIGHBOURS,
    SAME_FOR_ALL,
    LinearConfig,
    NeighbourConfig,
)
from dayahead.config.events import EventsConfig
from dayahead.config.live import LiveConfig
from dayahead.config.memory import MemoryConfig
from dayahead.config.model import LossConfig, ModelConfig, TaskConfig
from dayahead.core.columns import ITEM_ID
from dayahead.core.errors import ConfigError
from dayahead.core.plugins import load_plugin
from dayahead.distributed.sharding import WHOLE, Shard
from dayahead.memory.settings import MemorySettings
from dayahead.model.counting import Baseline, Cooccurrence, Transitions
from dayahead.model.linear import LinearModel
from dayahead.model.memory_recommender import MemoryRecommender
from dayahead.model.model import Model
from dayahead.model.neighbours import NeighbourModel
from dayahead.model.next_item import NextItemModel
from dayahead.model.own_items import Reminders
from dayahead.windows.metadata import Statistics


class ModelSettings(Protocol):
    """Sections of params.yaml, or of a saved model's config.json, that models are built from."""

    @property
    def model(self) -> ModelConfig:
        """The architecture and its sizes."""

    @property
    def task(self) -> TaskConfig:
        """What a network learns to predict."""

    @property
    def loss(self) -> LossConfig:
        """The loss of a network."""

    @property
    def neighbours(self) -> NeighbourConfig:
        """Settings of session neighbours."""

    @property
    def linear(self) -> LinearConfig:
        """Settings of linear models."""

    @property
    def memory(self) -> MemoryConfig:
        """Settings of memory."""

    @property
    def live(self) -> LiveConfig:
        """How memory counts within a window."""

    @property
    def events(self) -> EventsConfig:
        """What events of each type count for."""


def _neighbours(settings: ModelSettings) -> Baseline:
    return NeighbourModel(settings.neighbours, settings.model.architecture)


def _linear(settings: ModelSettings) -> Baseline:
    return LinearModel(settings.linear, settings.model.architecture)


BUILDERS: dict[str, Callable[[ModelSettings], Baseline]] = {
    "popularity": lambda _: Baseline(),
    ALWAYS_FIRST: lambda _: Baseline(),
    "transitions": lambda settings: Transitions(settings.model.decay),
    "cooccurrence": lambda settings: Cooccurrence(settings.model.decay),
    **dict.fromkeys(NEIGHBOURS, _neighbours),
    **dict.fromkeys(LINEAR, _linear),
}
"""Baselines by name; their settings are listed in `config.baselines.READS`."""


def build_model(
    settings: ModelSettings,
    statistics: Statistics,
    sizes: Mapping[str, int],
    seed: int,
    shard: Shard = WHOLE,
) -> Model:
    """Build the configured architecture; `grow` adds its items.

    `statistics` are statistics.json of the windows, which lists the features; `sizes` are those of
    the vocabularies at the first window, which determine the side embeddings'. Baselines use the
    settings and the data set's rule for repeats.

    Raises:
        ConfigError: settings of the inputs contradict each other, or would have no effect.
    """
    architecture, network = settings.model.architecture, None
    try:
        if settings.model.has_network:
            network = build_network(settings, statistics, sizes, seed, shard)
    except ConfigError as error:
        if architecture != MEMORY:
            raise
        raise ConfigError(str(error).replace("model.architecture", "model.network")) from None
    if architecture == MEMORY:
        return build_memory(settings, statistics, seed, network)
    if network is not None:
        return network
    baseline = build_baseline(settings)
    baseline.reminders = build_reminders(settings.model, statistics)
    return baseline


def build_network(
    settings: ModelSettings,
    statistics: Statistics,
    sizes: Mapping[str, int],
    seed: int,
    shard: Shard,
) -> NextItemModel:
    """Build the configured network; arguments and errors are those of `build_model`."""
    config = settings.model.of_network()
    features = statistics.select(config.features).features
    categoricals = vocabulary_columns(config, statistics)[1:]
    numbers = {
        column: feature.kind
        for name, feature in features.items()
        if name not in categoricals
        for column in feature.columns
    }
    _check_inputs(config, has_numbers=len(categoricals) < len(features))
    return NextItemModel(
        config,
        settings.task,
        settings.loss,
        categoricals={name: sizes[name] for name in categoricals},
        numbers=numbers,
        max_length=config.past_length + statistics.sessions.max_length,
        seed=seed,
        shard=shard,
    )


def build_baseline(settings: ModelSettings) -> Baseline:
    """Build the baseline of this name."""
    name = settings.model.architecture
    if name in BUILDERS:
        return BUILDERS[name](settings)
    return _plugin_baseline(name, settings.model.config)


def _plugin_baseline(name: str, arguments: Mapping[str, Any]) -> Baseline:
    """Build the baseline of another package with `model.config` as its arguments."""
    found = load_plugin("baseline", name)
    # Before it is called: the arguments may be those of a model folder from elsewhere.
    if not (isinstance(found, type) and issubclass(found, Baseline)):
        raise ConfigError(
            f"params.yaml: model.architecture: {name}: expected a subclass of "
            f"dayahead.model.counting.Baseline, found {found!r}"
        )
    try:
        return found(**arguments)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"params.yaml: model.config: {name}: {error}") from None


def build_reminders(config: ModelConfig, statistics: Statistics) -> Reminders:
    """Return how a baseline ranks a session's own items."""
    rule = config.remind
    if config.architecture == ALWAYS_FIRST:
        rule = "first"
    elif config.architecture == SAME_FOR_ALL and rule == "auto":
        rule = "score"
    repeats = statistics.sessions.repeats
    return Reminders(rule, config.remind_weight, config.remind_scale, repeats)


def build_memory(
    settings: ModelSettings,
    statistics: Statistics,
    seed: int,
    network: NextItemModel | None,
) -> MemoryRecommender:
    """Build the architecture `memory`, with a network or without.

    Raises:
        ConfigError: it is to read a feature that is no category, and no network reads it.
    """
    categories = vocabulary_columns(settings.model, statistics)[1:]
    others = [name for name in settings.model.features if name not in categories]
    if others and (network is None or not network.config.features):
        raise ConfigError(
            f"params.yaml: model.features: {', '.join(others)}: memory reads categorical features "
            f"only; leave {'it' if len(others) == 1 else 'them'} out, or set model.network to one "
            f"that reads features, such as gpt2"
        )
    live = settings.live
    of_memory = MemorySettings(
        config=settings.memory,
        unit=statistics.window_length,
        columns=categories,
        attributes=tuple(n for n in categories if statistics.features[n].of_item),
        vectors=_vectors_read(settings.memory, statistics),
        with_network=network is not None,
        with_past=settings.model.n_past_read > 0,
        tick=live.tick_microseconds,
        gap=live.gap_microseconds,
        min_length=statistics.sessions.min_length,
        has_weights=settings.events.weights is not None,
        seed=seed,
    )
    return MemoryRecommender(of_memory, network)


def _vectors_read(config: MemoryConfig, statistics: Statistics) -> tuple[str, ...]:
    """Return the names of the items' vectors that memory reads.

    Raises:
        ConfigError: the data set has no such vector.
    """
    known = () if statistics.items is None else tuple(statistics.items.vectors)
    if config.vectors == "all":
        return known
    if unknown := [name for name in config.vectors if name not in known]:
        raise ConfigError(
            f"params.yaml: memory.vectors: {', '.join(unknown)} not among items.vectors of the "
            f"data set ({', '.join(known) or 'it has none'})"
        )
    return config.vectors


def vocabulary_columns(config: ModelConfig, statistics: Statistics) -> tuple[str, ...]:
    """Columns for whose vocabularies the model has embeddings, the item id first."""
    return (ITEM_ID, *(n for n in config.features if statistics.features[n].kind == "categorical"))


def _check_inputs(config: ModelConfig, *, has_numbers: bool) -> None:
    is_elementwise = config.merge == "elementwise"
    if is_elementwise and not config.features:
        raise ConfigError(
            "params.yaml: model.merge: elementwise merges side features, and model.features names "
            "none; name some, or set model.merge to concat"
        )
    if (config.number_dim or config.soft_one_hot) and not has_numbers:
        raise ConfigError(
            f"params.yaml: model.number_dim ({config.number_dim}) and model.soft_one_hot "
            f"({config.soft_one_hot}) encode numeric features, and model.features names none; name "
            f"one, or set both to 0"
        )
    if is_elementwise and config.number_dim not in (0, config.item_dim):
        raise ConfigError(
            f"params.yaml: model.number_dim: {config.number_dim}, but with merge: elementwise each "
            f"vector has the item's size, {config.item_dim}; set model.number_dim to 0"
        )
    if config.soft_one_hot and not is_elementwise and config.number_dim == 0:
        raise ConfigError(
            f"params.yaml: model.soft_one_hot: {config.soft_one_hot} vectors of size "
            f"model.number_dim: 0; set model.number_dim above 0, or model.soft_one_hot to 0"
        )
