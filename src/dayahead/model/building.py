"""The model of the settings, empty of items."""

from collections.abc import Mapping

from dayahead.config.params import LossConfig, ModelConfig, TaskConfig
from dayahead.core.columns import ITEM_ID
from dayahead.core.errors import ConfigError
from dayahead.distributed.sharding import WHOLE, Shard
from dayahead.model.baselines import CountingModel
from dayahead.model.next_item import NextItemModel
from dayahead.windows.metadata import Statistics


def build_model(  # noqa: PLR0913, PLR0917
    config: ModelConfig,
    task: TaskConfig,
    loss: LossConfig,
    statistics: Statistics,
    sizes: Mapping[str, int],
    seed: int,
    shard: Shard = WHOLE,
) -> NextItemModel | CountingModel:
    """Build the architecture the settings name; `grow` gives it its items.

    Args:
        config: architecture and sizes.
        task: decides what the body may see.
        loss: what scores are compared with.
        statistics: statistics.json of the windows, which says what each feature is.
        sizes: values of each vocabulary at the first window; they size the side embeddings.
        seed: root of every initial value.
        shard: which rows of the item table this process holds; what counts has none.

    Raises:
        ConfigError: settings of the inputs contradict each other, or would do nothing.
    """
    if config.is_counted:
        return CountingModel(config)
    kinds = {name: statistics.features[name].kind for name in config.features}
    _check_inputs(config, has_numbers=any(kind != "categorical" for kind in kinds.values()))
    return NextItemModel(
        config,
        task,
        loss,
        categoricals={name: sizes[name] for name, kind in kinds.items() if kind == "categorical"},
        numbers=_number_columns(kinds, statistics),
        max_length=config.past_length + statistics.sessions.max_length,
        seed=seed,
        shard=shard,
    )


def _number_columns(kinds: Mapping[str, str], statistics: Statistics) -> dict[str, str]:
    """Window-file columns of the features that are numbers, and their kinds."""
    return {
        column: kind
        for name, kind in kinds.items()
        if kind != "categorical"
        for column in statistics.features[name].columns
    }


def vocabulary_columns(config: ModelConfig, statistics: Statistics) -> tuple[str, ...]:
    """Columns whose vocabularies the model holds rows of, the item id first."""
    features = statistics.features
    return (
        ITEM_ID,
        *(name for name in config.features if features[name].kind == "categorical"),
    )


def _check_inputs(config: ModelConfig, *, has_numbers: bool) -> None:
    """Refuse what would be another model than the one asked for, or the same as without."""
    is_elementwise = config.merge == "elementwise"
    makes_vectors = config.number_dim > 0 or config.soft_one_hot > 0
    if is_elementwise and not config.features:
        raise ConfigError(
            "params.yaml: model.merge: elementwise merges side features, and model.features names "
            "none; name some, or set model.merge to concat"
        )
    if makes_vectors and not has_numbers:
        raise ConfigError(
            f"params.yaml: model.number_dim ({config.number_dim}) and model.soft_one_hot "
            f"({config.soft_one_hot}) make vectors of numbers, and no feature of model.features "
            f"is one; name one, or set both to 0"
        )
    if is_elementwise and config.number_dim not in (0, config.item_dim):
        raise ConfigError(
            f"params.yaml: model.number_dim: {config.number_dim}, and by merge: elementwise each "
            f"vector has the item's size, {config.item_dim}; set model.number_dim to 0"
        )
    if config.soft_one_hot and not is_elementwise and config.number_dim == 0:
        raise ConfigError(
            f"params.yaml: model.soft_one_hot: {config.soft_one_hot} vectors of "
            f"model.number_dim: 0 numbers; set model.number_dim above 0, or model.soft_one_hot to 0"
        )
