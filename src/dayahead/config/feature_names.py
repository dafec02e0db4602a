"""Settings that name features, checked against those that the data set has."""

from collections.abc import Mapping, Sequence

from dayahead.config.params import USER, Params
from dayahead.core.suggestions import check_names


def check_feature_names(params: Params, kinds: Mapping[str, str], vectors: Sequence[str]) -> None:
    """Check all settings of params.yaml that name features.

    Args:
        params: all settings.
        kinds: the kind of each feature of the data set, by its name.
        vectors: names of the vectors of items.

    Raises:
        ConfigError: a feature is named that the data set lacks, or one of another kind.
    """
    evaluation = params.evaluation
    categories = [name for name, kind in kinds.items() if kind == "categorical"]
    by = [evaluation.diversity_by] if evaluation.diversity_by else []
    check_names("model.features", params.model.features, kinds, "feature")
    groups = [USER, *categories]
    check_names("evaluation.segments", evaluation.segments, groups, "categorical feature")
    what = "categorical feature or vector of items"
    check_names("evaluation.diversity_by", by, [*categories, *vectors], what)
