"""Settings of `dayahead nightly`: section `nightly` of params.yaml."""

from typing import Annotated, Any

from pydantic import AfterValidator, Field
from pydantic.dataclasses import dataclass

from dayahead.config.loading import STRICT, Count, FiniteMapping, Fraction, NonNegative, Share
from dayahead.config.metric_names import known_at_cutoff
from dayahead.config.model import FITTED

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,60}$")]


@dataclass(frozen=True, kw_only=True, config=STRICT)
class NightlyConfig:
    """What `dayahead nightly` publishes, what it refuses, and who challenges the champion.

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
    max_popularity_drift: Share | None
    """Jensen-Shannon divergence (base 2) between the events by item of a new window and of the
    windows before it, 0 if they are alike, 1 if they share no item: how far it may be from the
    largest of windows before it, equally far apart, to 1."""
    max_top_item: Share | None
    """Share of a new window's events on its most frequent item: how far it may be from the largest
    of the windows before it to 1. Half of all events on one item are those of bots."""
    max_silence: Share | None
    """Share of their clicks that windows of the same weekday have while a new window has none, in
    its longest such stretch: how far it may be from the largest of the windows before it, or from
    what chance gives so few sessions, to 1. Cut files and missing hours leave a silence; a quiet
    night is none."""
    max_catalogue_growth: NonNegative | None
    """Most items that a new window adds, per item of the catalogue before it."""
    readmit_after: Annotated[int, Field(ge=2, le=1000)] | None
    """A change of the data that lasts for this many windows in a row, like each other, is the new
    normal: the last of them is not refused, and those before it are a measure again."""
    max_fall: Fraction | None
    """Largest relative fall of the metric in a new window below its median in those before it."""
    max_lead_loss: Fraction | None
    """Largest relative loss of the lead over the best counting baseline (metric by metric), in the
    newest windows, below its best month: a decline too small or too slow for max_fall."""
    max_decline: Fraction | None
    """Largest relative decline of the metric in the newest windows below its best month."""
    max_refresh_fall: Fraction | None
    """Largest relative fall of the metric in the new window from the model before to the new one.
    The new model was fitted on that window: a smoke test, not an evaluation."""
    champion_margin: NonNegative | None
    """How far below the published model, if that is an older one, the settings' model may be: the
    95 % interval of the difference over the new window's targets must reach above minus this."""
    baseline_margin: NonNegative | None
    """How far below the best counting baseline the metric may be, on average over the new window
    and those before it."""
    min_coverage: Share | None
    """Smallest share of the new window's events whose items the new model knows."""
    min_list_coverage: Share | None
    """Smallest share of the items that lists could show that is in any list in the new window, at
    the metric's cutoff (coverage in results/lists.csv)."""
    max_list_gini: Share | None
    """Highest Gini index of how often items are in the lists of the new window, at the metric's
    cutoff: 0 if all are equally often, near 1 if the lists are all alike."""
    max_list_popularity: NonNegative | None
    """How many times as popular as those that users click the items in the lists of the new window
    may be, at the metric's cutoff (popularity_ratio in results/lists.csv)."""
    smoke_sessions: Count
    """Sessions of the new window that the new model must answer before it is published."""
    horizon: Annotated[int, Field(ge=5, le=10_000)]
    """Windows after a challenger's enrolment that decide, once, whether it succeeds. Below 10, half
    of it gives no interval, so no trial ends early."""
    seeds: Annotated[int, Field(ge=2, le=100)]
    """Runs of the champion and of each challenger, with training.seed and those that follow it: how
    much seeds differ is known from them. With 2, only large gains are found."""
    trials_per_year: Annotated[int, Field(ge=1, le=10_000)]
    """Most trials that are enrolled in 365 days, whatever their settings. They share a probability
    of 2.5 % that any challenger succeeds that is not better: the fewer, the smaller a gain that is
    found."""
    margin: NonNegative
    """By how much the challenger must be better: the lower bound of the difference in the metric
    must be above this."""
    max_recall_loss: Fraction
    """Largest relative loss of recall, at the metric's cutoff, of a challenger that succeeds."""
    challengers: dict[Name, FiniteMapping]
    """Name: settings that differ from the champion's, laid out as in this file:
    {small: {model: {d_model: 32}}}."""

    def __post_init__(self) -> None:
        """Check that challengers change how models are fitted, and nothing else."""
        for name, changes in self.challengers.items():
            unknown = [section for section in changes if section not in FITTED]
            if unknown or not changes:
                raise ValueError(
                    f"challengers.{name}: changes {', '.join(unknown) or 'nothing'}; expected "
                    f"sections among {', '.join(FITTED)}, which fit models on the same windows"
                )
            flat = [section for section, values in changes.items() if not isinstance(values, dict)]
            if flat:
                raise ValueError(
                    f"challengers.{name}.{flat[0]}: expected a mapping of settings, such as "
                    f"{{model: {{d_model: 32}}}}"
                )

    @property
    def cutoff(self) -> int:
        """Cutoff of the metric of decisions."""
        return int(self.metric.rpartition("_")[2])

    @property
    def list_limits(self) -> dict[str, float]:
        """Limits of the guards that look at lists, by their settings, where they are set."""
        limits = {
            "min_list_coverage": self.min_list_coverage,
            "max_list_gini": self.max_list_gini,
            "max_list_popularity": self.max_list_popularity,
        }
        return {guard: limit for guard, limit in limits.items() if limit is not None}

    @property
    def slow_limits(self) -> dict[str, float | None]:
        """Limits of the guards that compare with the best month."""
        return {"max_lead_loss": self.max_lead_loss, "max_decline": self.max_decline}

    @property
    def decision_settings(self) -> dict[str, Any]:
        """Settings that the decision on a night depends on."""
        return {name: each for name, each in vars(self).items() if name not in _NO_DECISION}


_NO_DECISION = (
    *("model", "keep", "horizon", "seeds"),
    *("trials_per_year", "margin", "max_recall_loss", "challengers"),
)
