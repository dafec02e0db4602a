"""Settings that name features, checked against those that the data set has."""

from collections.abc import Mapping

from dayahead.config.params import Params
from dayahead.core.suggestions import check_names


def check_feature_names(params: Params, kinds: Mapping[str, str]) -> None:
    """Check all settings of params.yaml that name features.

    Args:
        params: all settings.
        kinds: the kind of each feature of the data set, by its name.

    Raises:
        ConfigError: a feature is named that the data set lacks, or one of another kind.
    """
    check_names("model.features", params.model.features, kinds, "feature")
