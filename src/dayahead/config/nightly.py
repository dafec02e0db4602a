"""Settings of `dayahead nightly`: section `nightly` of params.yaml."""

from typing import Annotated, Any

from pydantic import AfterValidator, Field
from pydantic.dataclasses import dataclass

from dayahead.config.loading import STRICT, Count, Fraction, NonNegative, Share
from dayahead.config.metric_names import known_at_cutoff

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,60}$")]


@dataclass(frozen=True, kw_only=True, config=STRICT)
class NightlyConfig:
    """What `dayahead nightly` publishes, and what it refuses.

    No stage reads it and no cache key depends on it. A limit of null switches its guard off.
    """

    model: Name
    """Registered model in MLflow; its aliases are champion and previous."""
    metric: Annotated[str, AfterValidator(known_at_cutoff)]
    """Metric of all decisions, of which more is better: recall, ndcg, mrr or one of
    evaluation.metrics, at one of evaluation.cutoffs."""
    windows: Annotated[int, Field(ge=1, le=1000)]
    """Windows before the new one that it is compared with."""
    keep: Annotated[int, Field(ge=2, le=10_000)]
    """Published models that are kept; the current and the previous one always are."""
    max_session_change: Annotated[float, Field(ge=1, le=1e6)] | None
    """How many times as far from the sessions expected, up or down, a new window may be as the
    farthest of the windows before it. Expected is the median of the same weekday."""
    max_new_items: Share | None
    """Share of a new window's events on items that no earlier window has: how far it may be from
    the largest of the windows before it to 1. News are new every day, shoes are not."""
    max_fall: Fraction | None
    """Largest relative fall of the metric in a new window below its median in those before it."""
    max_settings_loss: Fraction | None
    """Largest relative loss of the metric by a change of settings, over the newest windows that
    were evaluated with both. A change that makes no difference loses a little by chance."""
    baseline_margin: NonNegative | None
    """How far below the best counting baseline the metric may be, on average over the new window
    and those before it."""
    min_coverage: Share | None
    """Smallest share of the new window's events whose items the new model knows."""
    smoke_sessions: Count
    """Sessions of the new window that the new model must answer before it is published."""

    @property
    def decision_settings(self) -> dict[str, Any]:
        """Settings that the decision on a night depends on."""
        return {name: each for name, each in vars(self).items() if name not in ("model", "keep")}
