"""What events of each type count for: section `events` of params.yaml."""

from typing import Annotated, ClassVar

from pydantic import Field
from pydantic.dataclasses import dataclass

from dayahead.config.baselines import NOT_BASELINES
from dayahead.config.loading import STRICT, NonNegative
from dayahead.config.marks import EVERY_MODEL


@dataclass(frozen=True, kw_only=True, config=STRICT)
class EventsConfig:
    """What events of each type count for, where the data set file has `columns.event_type`."""

    READ_BY: ClassVar = NOT_BASELINES
    targets: Annotated[tuple[str, ...], Field(min_length=1)] | None
    """Types of the events that are predicted, such as [cart, purchase]: a session's target is its
    last such event, and networks and memory learn to predict these alone. Events of all types are
    read and counted. null: all types."""
    weights: Annotated[Annotated[dict[str, NonNegative], Field(min_length=1)] | None, EVERY_MODEL]
    """What an event of a type counts, such as {view: 1, cart: 3, purchase: 10}, in the sums of
    memory, the counts of popularity, transitions and cooccurrence, and the losses; types that are
    not named, and events without one, count 1. null: every event counts 1."""

    @property
    def named(self) -> tuple[str, ...]:
        """All types that are named."""
        return tuple(dict.fromkeys((*(self.targets or ()), *(self.weights or ()))))
