"""Sections of params.yaml that say how a study runs: training, evaluation, compute."""

from typing import Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from dayahead.config.loading import STRICT, Auto, PositiveFloat, PositiveInt


@dataclass(frozen=True, kw_only=True, config=STRICT)
class TrainingConfig:
    """The protocol over windows and the steps within one."""

    protocol: Literal["incremental", "sliding", "from_scratch"]
    """What is fitted at each window: one model that goes on, on that window; on the last `history`
    windows; or a fresh model on all windows so far. What counts instead of following gradients
    counts the same windows, once. Whatever is fitted on, the candidates `seen` are the items of
    all windows so far."""
    history: PositiveInt
    """Windows that `sliding` fits on, the newest included; fewer at the beginning."""
    carry_model: bool
    """Whether `sliding` goes on with the model, or begins with a fresh one, always the same."""
    carry_optimiser: bool
    """Whether the optimiser's moments go on with the model, or start from zero at each window; a
    fresh model has none to go on with."""
    epochs: PositiveInt
    """Passes over the windows fitted on, where `steps_per_window` is null."""
    steps_per_window: PositiveInt | None
    """Steps at each window, whatever its size: they alone decide, passes are repeated as needed
    and the last one is cut. null: `epochs` decide."""
    batch_size: PositiveInt
    """Sessions per step over all processes together."""
    learning_rate: PositiveFloat
    schedule: Literal["linear", "constant", "cosine"]
    """Course of the learning rate over a window's steps; it restarts with each. As transformers'
    get_{linear,constant,cosine}_schedule_with_warmup."""
    cosine_cycles: PositiveFloat
    """Waves of `cosine` in a window: 0.5 falls to 0 once, 1.5 rises again and falls once more."""
    warmup_steps: Annotated[int, Field(ge=0)]
    """Steps of each window in which the rate rises from 0; a window of fewer ends on the rise."""
    weight_decay: Annotated[float, Field(ge=0)]
    max_grad_norm: PositiveFloat
    length_groups: PositiveInt
    """Parts of like length in which a batch goes through the body, so that little is padding."""
    loader: Literal["memory", "nvtabular"]
    precision: Literal["auto", "float32", "bfloat16"]
    """Of the fit's matrix products; auto: bfloat16 where the device is good at it. Scores are
    float32 always."""
    fit_last: bool
    """After the last measurement fit on that window too: what tomorrow starts from."""
    seed: Annotated[int, Field(ge=0)]

    def __post_init__(self) -> None:
        """Refuse steps of which none reaches the learning rate."""
        if self.steps_per_window is not None and self.warmup_steps >= self.steps_per_window:
            raise ValueError(
                f"warmup_steps ({self.warmup_steps}) must be below steps_per_window "
                f"({self.steps_per_window}), or the rate never gets to learning_rate"
            )

    @property
    def starts_afresh(self) -> bool:
        """Whether every fit begins with a fresh model."""
        is_sliding = self.protocol == "sliding"
        return self.protocol == "from_scratch" or (is_sliding and not self.carry_model)


@dataclass(frozen=True, kw_only=True, config=STRICT)
class EvaluationConfig:
    """What is measured, against which candidates."""

    split: Literal["valid", "test", "all"]
    candidates: Literal["seen", "all"]
    """Items in train sessions up to the fitted window, or the whole catalogue of the log."""
    positions: Literal["last", "all"]
    """Targets: a session's last item, or every item after its first. Each is a question of its
    own, given the items before it alone; metrics are means over targets, however many a session
    has."""
    train_sessions: Annotated[int, Field(ge=0)]
    """Train sessions of the newest window fitted, drawn by the seed, that are measured too (train
    metrics, columns train_<metric>); 0: none, all where there are fewer."""
    predictions: Annotated[int, Field(ge=0)]
    """Best candidates that are written with their scores for every target
    (results/predictions/); 0: none. So many numbers for each target are held in memory."""
    attention_of: tuple[str, ...]
    """Ids of sessions whose attention weights are written (results/attention/), of the pass that
    scores their last item; each must measure a window."""
    cutoffs: Annotated[tuple[PositiveInt, ...], Field(min_length=1)]
    """Lengths of the lists measured."""
    batch_size: PositiveInt
    """Sessions scored at once over all processes together; at all positions, targets."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class ComputeConfig:
    """Processes, threads and devices."""

    processes: PositiveInt | Auto
    """auto: one per GPU, one on the CPU; or as many as a launcher has started."""
    threads: PositiveInt | Auto
    """Threads per process, never inherited; auto: the cores divided by the processes."""
    device: Literal["auto", "cpu", "cuda"]
    shard_items: bool
    """Whether the rows of the item table, their bias and their optimiser's moments are shared out
    over the processes, for catalogues too large for one; what is kept is the same."""
    keep_states: PositiveInt | Literal["last", "all"]
    """Fits kept along a chain of windows, the newest ones: from the last of them a killed run, or
    one over a longer log, goes on; runs of the same settings share them. all: then other settings
    of `evaluation` need no fit either."""
    max_restarts: Annotated[int, Field(ge=0)]
    """How often several processes are started again, from the last fit kept, when one of them
    dies."""
    strict: bool
    """Whether what was fitted on another kind of machine, or by other numbers of processes and
    threads, is left alone, and fitted anew here; false: warn and go on from it."""
