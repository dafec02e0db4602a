"""Settings of the architecture `memory`: section `memory` of params.yaml."""

from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field
from pydantic.dataclasses import dataclass

from dayahead.config.baselines import MEMORY
from dayahead.config.loading import (
    STRICT,
    Count,
    CountOrZero,
    NonNegative,
    Positive,
    Share,
    SizeOrZero,
)
from dayahead.config.marks import ReadIf, by
from dayahead.core.durations import microseconds_of


def _check_half_lives(values: tuple[float | str, ...]) -> tuple[float | str, ...]:
    durations = [microseconds_of(value) for value in values if isinstance(value, str)]
    numbers = [value for value in values if not isinstance(value, str)]
    if durations and numbers:
        raise ValueError("expected numbers of windows, or durations such as 4h, not both")
    if (found := durations or numbers) != sorted({*found}):
        raise ValueError("expected half-lives in ascending order, each once")
    return values


HalfLives = Annotated[
    tuple[Positive | str, ...],
    Field(min_length=1, max_length=16),
    AfterValidator(_check_half_lives),
]


@dataclass(frozen=True, kw_only=True, config=STRICT)
class MemoryConfig:
    """Memories of clicks, and the head that weighs their evidence."""

    READ_BY: ClassVar = by(MEMORY)
    n_candidates: Annotated[int, Field(ge=1, le=1000)]
    """Items that the head ranks after each session; all others rank below, by popularity."""
    rank_all: bool
    """Whether the head ranks every item seen so far instead; it learns from candidates still."""
    head: Literal["mlp", "mixture"]
    """How evidence is joined. mlp: an item's score is a function of its features and of the
    context; mixture: an item's probability is the mean of those that the sources give it."""
    head_width: Annotated[SizeOrZero, ReadIf(lambda p: p.memory.head == "mlp")]
    """mlp: hidden units; 0: a linear head."""
    learning_rate: Positive
    """Of AdamW for the head; it falls to a tenth in each fit."""
    weight_decay: NonNegative
    """Of AdamW for the head."""
    batch_size: Count
    """Examples per step of the head, at most: clicks with what precedes them in their session."""
    min_steps: CountOrZero
    """Steps that the head takes in an epoch at least, down to one per example: where a window has
    few, a step has fewer than `batch_size`."""
    epochs: Annotated[int, Field(ge=1, le=1000)]
    """Epochs of the head in each fit."""
    first_epochs: Annotated[int, Field(ge=1, le=1000)]
    """The same in the first fit, where the later half of the window teaches the head."""
    end_to_end: bool
    """Whether the loss of the head fits the network too, in the epochs of the head and on its
    examples, instead of the loss of the network's task. Dropout, noise, batches and precision of
    the network's own training have no effect then."""
    network_steps: Annotated[Count | None, ReadIf(lambda p: p.limits_network)]
    """Steps of the network in a fit at most, where `training.steps_per_window` is null: a window of
    many sessions is not passed over as often as `training.epochs` says. In the first fit a copy of
    the network, which the head learns with, takes half as many besides. null: no limit."""
    vectors: Literal["all"] | tuple[str, ...]
    """Names of the vectors of items (items.vectors in the data set's file) that candidates are
    compared with the session by; the nearest items without a click are candidates too."""
    n_examples: Annotated[int, Field(ge=1, le=100_000)]
    """Clicks of a window that the head learns to predict, all but the first of each session; drawn
    at random where there are more."""
    n_replayed: Annotated[int, Field(ge=0, le=100_000)]
    """Newest examples of earlier windows that the head learns from again."""
    n_latest: Count
    """Newest sessions with the session's last item that may be neighbours."""
    n_earlier: Count
    """Newest sessions with an earlier item of the session that may be neighbours."""
    n_best: CountOrZero
    """Neighbours whose items are evidence; 0: none are looked for."""
    max_sessions: Count
    """Sessions held, the newest."""
    max_pairs: Annotated[int, Field(ge=1, le=1_000_000_000)]
    """Pairs of items held, those with the largest counts; 70 bytes each, twice that while a
    window is counted."""
    fade: Share
    """Factor by which the weight of a shared item falls per event from the session's end."""
    reach: Count
    """Last items of a session that neighbours are compared with."""
    backward: Share
    """Weight of a neighbour's items before the shared one, as a share of that of those after it."""
    sharpness: Positive
    """Power of the similarity in a second sum over the same neighbours."""
    pair_next_half_lives: HalfLives
    """Half-lives of the counts of clicks that follow an item: numbers of windows, or durations such
    as 4h."""
    pair_first_half_lives: HalfLives
    """The same for clicks that follow a session's first item."""
    pair_end_half_lives: HalfLives
    """The same for a session's last click, by the item before it."""
    pair_forward_half_lives: HalfLives
    """The same for clicks anywhere after an item, by distance."""
    pair_backward_half_lives: HalfLives
    """The same for clicks anywhere before an item, by distance."""
    item_clicks_half_lives: HalfLives
    """Half-lives of an item's clicks."""
    item_later_half_lives: HalfLives
    """The same for clicks after a session's first."""
    item_end_half_lives: HalfLives
    """The same for a session's last clicks."""
    category_half_lives: HalfLives
    """Half-lives of the clicks that follow a value of a categorical column."""
    neighbour_half_lives: HalfLives
    """Half-lives of a neighbour's weight; short ones suit news, long ones shops."""
    past_half_lives: HalfLives
    """Half-lives of clicks by the last item that the user clicked before."""

    def batch_size_of(self, n_examples: int) -> int:
        """Return how many of the head's examples a step has: few enough for `min_steps` steps."""
        return min(self.batch_size, max(1, n_examples // max(1, self.min_steps)))

    @property
    def early_network_steps(self) -> int | None:
        """Steps at most of the network's copy in a first fit, which has half of the sessions."""
        return self.network_steps and -(-self.network_steps // 2)
