"""Settings of params.yaml that name features, checked before the first stage."""

from dayahead.config.feature_names import check_feature_names
from dayahead.config.params import Params
from dayahead.core.errors import ConfigError
from dayahead.dataset.schema import DatasetConfig


def check_features(dataset: DatasetConfig, params: Params) -> None:
    """Check the settings that name features of a data set, or types of its events.

    Raises:
        ConfigError: the data set has no such feature, or its events have no types.
    """
    kinds = {name: feature.kind for name, feature in dataset.all_features.items()}
    check_feature_names(params, kinds)
    if params.events.named and dataset.columns.event_type is None:
        raise ConfigError(
            f"params.yaml: events: {', '.join(params.events.named)}: the events of "
            f"{params.dataset} have no types; name their column in columns.event_type of "
            f"datasets/{params.dataset}.yaml, or set events.targets and events.weights to null"
        )
