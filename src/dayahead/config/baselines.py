"""Settings of the non-neural baselines: sections `neighbours` and `linear` of params.yaml."""

from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from dayahead.config.loading import STRICT, Count, NonNegative, Positive, Share
from dayahead.config.marks import ReadBy, ReadIf, by
from dayahead.core.plugins import is_plugin

SAME_FOR_ALL: Final = "popularity"
"""Ranks own items as it scores them where `model.remind` is auto, for `own` puts them first."""
ALWAYS_FIRST: Final = "own"
"""Popularity after the session's own items, whatever `model.remind` says."""
NEIGHBOURS: Final = ("sknn", "vsknn", "stan", "vstan")
LINEAR: Final = ("slis", "slit", "slist")
BASELINES: Final = (SAME_FOR_ALL, ALWAYS_FIRST, "transitions", "cooccurrence", *NEIGHBOURS, *LINEAR)
MEMORY: Final = "memory"
NAMED_TRANSFORMERS: Final = ("gpt2", "xlnet", "bert", "albert", "electra", "longformer", "reformer")
"""Transformers types named by the paper or its code; any other type may be named too."""
OWN_NETWORKS: Final = ("gru", "lstm", "rnn", "gru4rec", "avg", "ligr")
"""Networks of torch, the mean of the events so far, and the transformer of eSASRec."""
OURS: Final = frozenset({*BASELINES, *NAMED_TRANSFORMERS, *OWN_NETWORKS, MEMORY, "none"})
"""Names that no entry point of another package takes over."""
TIMED: Final = (*NEIGHBOURS, *LINEAR, MEMORY)
"""Those that read the times of events."""
COMPARED: Final = (SAME_FOR_ALL, ALWAYS_FIRST, "transitions")
"""Evaluated on the same windows as every model."""
_STAN = by("stan", "vstan")
Decay = Literal["same", "linear", "div", "log", "quadratic"]


def is_plugin_baseline(architecture: str) -> bool:
    """Whether an architecture is a baseline of another package; our own names are ours."""
    return architecture not in OURS and is_plugin("baseline", architecture)


def is_baseline(architecture: str) -> bool:
    """Whether an architecture is a baseline, of ours or of another package."""
    return architecture in BASELINES or is_plugin_baseline(architecture)


def reads_times(architecture: str) -> bool:
    """Whether an architecture reads the times of events; all baselines of other packages may."""
    return architecture in TIMED or is_plugin_baseline(architecture)


def adds_fits(architecture: str) -> bool:
    """Whether a fit adds the sessions of its windows to those of earlier fits.

    Networks learn from them again, and popularity is that of the last fit alone. Baselines of other
    packages may add them.
    """
    adds = is_baseline(architecture) and architecture not in {SAME_FOR_ALL, ALWAYS_FIRST}
    return adds or architecture == MEMORY


NOT_BASELINES = ReadBy(lambda model: not is_baseline(model.architecture))
NETWORKS_AND_PLUGINS = ReadBy(
    lambda model: model.has_network or is_plugin_baseline(model.architecture)
)
REMINDED = ReadBy(
    lambda model: is_baseline(model.architecture) and model.architecture != ALWAYS_FIRST
)


def baselines_beside(architecture: str) -> tuple[str, ...]:
    """Return the baselines that a run is compared with: not the one that it is itself."""
    return tuple(name for name in COMPARED if name != architecture)


@dataclass(frozen=True, kw_only=True, config=STRICT)
class NeighbourConfig:
    """Session neighbours: sknn, vsknn, stan and vstan."""

    READ_BY: ClassVar = by(*NEIGHBOURS)
    k: Count
    """Most similar earlier sessions whose items are recommended."""
    sample_size: Annotated[int, Field(ge=1, le=100_000)]
    """Newest sessions with an item of the session that are compared with it."""
    position_weight: Annotated[Decay, by("vsknn")]
    """vsknn: weight of a session's event i of n. same 1, linear 1 - (n - i) / 10, div i / n, log
    1 / log10(n - i + 1.7), quadratic (i / n)^2."""
    step_weight: Annotated[Decay, by("vsknn")]
    """vsknn: weight of a neighbour whose last shared item is event i from the session's end. same
    1, linear 1 - i / 10, div 1 / i, log 1 / log10(i + 1.7), quadratic 1 / i^2."""
    position_scale: Annotated[Positive, _STAN]
    """stan, vstan: decay constant of an event's weight, in events from the session's end
    (lambda_spw)."""
    age_scale: Annotated[Positive, _STAN]
    """stan, vstan: decay constant of an earlier session's weight, in days (lambda_snh)."""
    distance_scale: Annotated[Positive, _STAN]
    """stan, vstan: decay constant of the weight of a neighbour's item, in events from the last
    shared item (lambda_inh)."""
    step_scale: Annotated[Positive, by("vstan")]
    """vstan: decay constant of a neighbour's weight, in events from the last shared item to the
    session's end (lambda_ipw)."""
    idf: Annotated[NonNegative, by("vsknn", "vstan")]
    """vsknn, vstan: weight of the inverse frequency of the recommended item; 0: none."""
    push_reminders: Annotated[bool, by("vsknn"), ReadIf(lambda p: p.model.remind != "none")]
    """vsknn: multiply the score of an item of the session by 1 + its number of events there, before
    `model.remind` acts; without effect where that says none."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class LinearConfig:
    """Linear item-item models in closed form: slis, slit and slist."""

    READ_BY: ClassVar = by(*LINEAR)
    n_items: Annotated[int, Field(ge=1, le=20_000)]
    """Items modelled, those with most weight in recent sessions; time grows with its cube."""
    regularization: Annotated[float, Field(ge=0.01, le=1e6)]
    """Ridge added to the diagonal of the Gram matrix."""
    similarity_share: Annotated[Share, by("slist")]
    """slist: share of slis beside slit in the loss (alpha)."""
    train_scale: Annotated[Positive, by("slit", "slist")]
    """slit, slist: decay constant in training, in events from the one predicted."""
    age_scale: Positive
    """Decay constant of an earlier session's weight, in days."""
    predict_scale: Positive
    """Decay constant of an event's weight in scores, in events from the session's end."""
