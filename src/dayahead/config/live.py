"""Settings of counting within a window: section `live` of params.yaml."""

from typing import Annotated, ClassVar

from pydantic import AfterValidator
from pydantic.dataclasses import dataclass

from dayahead.config.baselines import MEMORY
from dayahead.config.loading import STRICT, Duration
from dayahead.config.marks import ReadIf, by
from dayahead.core.durations import microseconds_of


def _check_tick(value: int | str) -> int | str:
    if isinstance(value, str):
        microseconds_of(value)
    elif value:
        raise ValueError("expected 0, or a duration such as 10min")
    return value


@dataclass(frozen=True, kw_only=True, config=STRICT)
class LiveConfig:
    """How `memory` goes on counting clicks between two fits."""

    READ_BY: ClassVar = by(MEMORY)
    tick: Annotated[int | str, AfterValidator(_check_tick)]
    """Time between two counts, such as 10min: clicks count from the next multiple of it since 1970
    on. It divides the windows. 0: memories stand still within a window."""
    session_gap: Annotated[Duration, ReadIf(lambda p: p.live.tick != 0)]
    """A session ends when it has had no click for so long: then its last click counts as one."""

    @property
    def tick_microseconds(self) -> int:
        """The tick in microseconds; 0: none."""
        return microseconds_of(self.tick) if isinstance(self.tick, str) else 0

    @property
    def gap_microseconds(self) -> int:
        """The session gap in microseconds."""
        return microseconds_of(self.session_gap)
