"""Settings of the non-neural baselines: sections `neighbours` and `linear` of params.yaml."""

from typing import Annotated, Final, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from dayahead.config.loading import STRICT, Count, NonNegative, Positive

COUNTS: Final = ("popularity", "transitions", "cooccurrence")
NEIGHBOURS: Final = ("sknn", "vsknn", "stan", "vstan")
LINEAR: Final = ("slis", "slit", "slist")
BASELINES: Final = (*COUNTS, *NEIGHBOURS, *LINEAR)
MEMORY: Final = "memory"
TIMED: Final = (*NEIGHBOURS, *LINEAR, MEMORY)
"""Those that read the times of events."""
Decay = Literal["same", "linear", "div", "log", "quadratic"]


@dataclass(frozen=True, kw_only=True, config=STRICT)
class NeighbourConfig:
    """Session neighbours: sknn, vsknn, stan and vstan."""

    k: Count
    """Most similar earlier sessions whose items are recommended."""
    sample_size: Annotated[int, Field(ge=1, le=100_000)]
    """Newest sessions with an item of the session that are compared with it."""
    position_weight: Decay
    """vsknn: weight of a session's event i of n. same 1, linear 1 - (n - i) / 10, div i / n, log
    1 / log10(n - i + 1.7), quadratic (i / n)^2."""
    step_weight: Decay
    """vsknn: weight of a neighbour whose last shared item is event i from the session's end. same
    1, linear 1 - i / 10, div 1 / i, log 1 / log10(i + 1.7), quadratic 1 / i^2."""
    position_scale: Positive
    """stan, vstan: events in which a session's event loses a factor e (lambda_spw)."""
    age_scale: Positive
    """stan, vstan: days in which an earlier session loses a factor e (lambda_snh)."""
    distance_scale: Positive
    """stan, vstan: events from the last shared item in which an item of a neighbour loses a factor
    e (lambda_inh)."""
    step_scale: Positive
    """vstan: events from the session's end in which the last shared item loses a factor e
    (lambda_ipw)."""
    idf: NonNegative
    """vsknn, vstan: weight of the inverse frequency of the recommended item; 0: none."""
    remind: bool
    """Whether items of the session itself are recommended."""
    push_reminders: bool
    """vsknn: whether those count once more for every time they occur in it."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class LinearConfig:
    """Linear item-item models in closed form: slis, slit and slist."""

    n_items: Annotated[int, Field(ge=1, le=20_000)]
    """Items modelled, those with most events in recent sessions; time grows with its cube."""
    regularization: Positive
    """Ridge added to the diagonal of the Gram matrix."""
    similarity_share: Annotated[float, Field(ge=0, le=1)]
    """slist: share of slis beside slit in the loss (alpha)."""
    train_scale: Positive
    """slit, slist: events from the one predicted in which an event of training loses a factor e."""
    age_scale: Positive
    """Days in which an earlier session loses a factor e."""
    predict_scale: Positive
    """Events from the session's end in which an input event loses a factor e."""
