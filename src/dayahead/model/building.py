"""Models from settings: networks, memory and baselines, by the name of their architecture."""

from collections.abc import Mapping

from dayahead.config.baselines import ALWAYS_FIRST, LINEAR, MEMORY, NEIGHBOURS, SAME_FOR_ALL
from dayahead.config.model import ModelConfig, ModelSections
from dayahead.core.errors import ConfigError
from dayahead.distributed.sharding import WHOLE, Shard
from dayahead.model.backbones import plugin_class
from dayahead.model.counting import Baseline, Cooccurrence, Transitions
from dayahead.model.inputs import check_inputs, vocabulary_columns
from dayahead.model.linear import LinearModel
from dayahead.model.memory_recommender import MemoryRecommender
from dayahead.model.model import Model
from dayahead.model.neighbours import NeighbourModel
from dayahead.model.next_item import NextItemModel
from dayahead.model.own_items import Reminders
from dayahead.windows.metadata import Statistics

BASELINE_CLASSES: dict[str, type[Baseline]] = {
    SAME_FOR_ALL: Baseline,
    ALWAYS_FIRST: Baseline,
    "transitions": Transitions,
    "cooccurrence": Cooccurrence,
    **dict.fromkeys(NEIGHBOURS, NeighbourModel),
    **dict.fromkeys(LINEAR, LinearModel),
}


def build_model(
    settings: ModelSections,
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
    network = None
    if settings.model.has_network:
        network = build_network(settings, statistics, sizes, seed, shard)
    if settings.model.architecture == MEMORY:
        return MemoryRecommender.build(settings, statistics, seed, network)
    if network is not None:
        return network
    baseline = build_baseline(settings)
    baseline.reminders = build_reminders(settings.model, statistics)
    return baseline


def build_network(
    settings: ModelSections,
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
    check_inputs(config, has_numbers=len(categoricals) < len(features))
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


def build_baseline(settings: ModelSections) -> Baseline:
    """Build the baseline of this name, with `model.config` as the arguments of one not ours."""
    name = settings.model.architecture
    if name in BASELINE_CLASSES:
        return BASELINE_CLASSES[name].build(settings)
    found = plugin_class("baseline", name, Baseline, "dayahead.model.counting.Baseline")
    try:
        return found(**settings.model.config)
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
