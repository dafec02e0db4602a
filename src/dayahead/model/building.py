"""The model of the settings, empty of items."""

from collections.abc import Mapping
from typing import Any

from dayahead.columns import ITEM_ID
from dayahead.config.params import LossConfig, ModelConfig, TaskConfig
from dayahead.model.counts import CountModel
from dayahead.model.next_item import NextItemModel


def build_model(
    config: ModelConfig,
    task: TaskConfig,
    loss: LossConfig,
    statistics: Mapping[str, Any],
    sizes: Mapping[str, int],
    seed: int,
) -> NextItemModel | CountModel:
    """Build the architecture the settings name; `grow` gives it its items.

    Args:
        config: architecture and sizes.
        task: decides what the body may see.
        loss: smoothing and memory of the softmax.
        statistics: statistics.json of the windows, which says what each feature is.
        sizes: values of each vocabulary at the first window; they size the side embeddings.
        seed: root of every initial value.
    """
    if config.is_counted:
        return CountModel(config)
    kinds = {name: statistics["features"][name]["kind"] for name in config.features}
    return NextItemModel(
        config,
        task,
        loss,
        categoricals={name: sizes[name] for name, kind in kinds.items() if kind == "categorical"},
        numbers={
            column: kind
            for name, kind in kinds.items()
            if kind != "categorical"
            for column in statistics["features"][name]["columns"]
        },
        max_length=statistics["sessions"]["max_length"],
        seed=seed,
    )


def vocabulary_columns(config: ModelConfig, statistics: Mapping[str, Any]) -> tuple[str, ...]:
    """Columns whose vocabularies the model holds rows of, the item id first."""
    features = statistics["features"]
    return (
        ITEM_ID,
        *(name for name in config.features if features[name]["kind"] == "categorical"),
    )
