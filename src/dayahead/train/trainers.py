"""What the window loop asks of an architecture, and the two kinds that answer."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from typing import Protocol

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from dayahead.config.training import TrainingConfig
from dayahead.core.columns import ITEM_ID
from dayahead.core.errors import TrainingError
from dayahead.core.seeds import derived_seed
from dayahead.distributed.process import Process
from dayahead.model.baselines import CountModel
from dayahead.model.checkpoint import restore_weights, weights_of
from dayahead.model.next_item import NextItemModel
from dayahead.model.rng import Draws
from dayahead.train.batches import Batch, Batches, Share
from dayahead.train.optimizer import (
    build_optimiser,
    follow_growth,
    moments_of,
    restore_moments,
    set_learning_rate,
)

_WEIGHTS, _MOMENTS = "weights.", "moments."
OnStep = Callable[[int], object]
"""Called after each step with its number of sessions."""


class Learner(Protocol):
    """An architecture in the window loop."""

    fit_share: Share
    """Which rows of a global batch `fit` wants."""

    def grow(self, sizes: dict[str, int]) -> None:
        """Hold the first `sizes[column]` values of each vocabulary."""
        ...

    def n_steps(self, passes: list[Batches]) -> int:
        """How many batches `fit` goes through, from the first pass on."""
        ...

    def fit(self, window: str, passes: list[Batches], on_step: OnStep) -> float | None:
        """Learn at a window; the mean loss per target, None where nothing is minimised."""
        ...

    def state(self) -> dict[str, Tensor]:
        """All that the next window's fit depends on, on the CPU."""
        ...

    def restore(self, sizes: dict[str, int], state: Mapping[str, Tensor]) -> None:
        """Stand where another learner stood whose vocabularies had these sizes."""
        ...


@dataclass
class CountLearner:
    """Counts a window once, on every process alike."""

    model: CountModel
    fit_share = Share(rank=0, world=1)

    def grow(self, sizes: dict[str, int]) -> None:
        """Hold the first `sizes[item_id]` items."""
        self.model.grow(sizes[ITEM_ID])

    def n_steps(self, passes: list[Batches]) -> int:
        """One whole pass: counting twice counts nothing new, and half a pass too little."""
        return passes[0].n_steps

    def fit(self, window: str, passes: list[Batches], on_step: OnStep) -> None:
        """Count every session of one pass."""
        self.model.start_window()
        for batch in passes[0]:
            self.model.count(batch.columns[ITEM_ID], batch.lengths)
            on_step(batch.n_global)
        self.model.finish_window()

    def state(self) -> dict[str, Tensor]:
        """The counts."""
        return weights_of(self.model)

    def restore(self, sizes: dict[str, int], state: Mapping[str, Tensor]) -> None:
        """Go on from these counts."""
        restore_weights(self.model, sizes, state)


class GradientLearner:
    """Follows the gradient of a next-item model, step by step, the same on every process."""

    def __init__(self, model: NextItemModel, config: TrainingConfig, process: Process) -> None:
        self.model = model.to(process.device)
        self.config = config
        self.process = process
        self.fit_share = process.share
        self.optimiser = build_optimiser(self.model, config)
        self.wrapped: nn.Module = self.model

    def grow(self, sizes: dict[str, int]) -> None:
        """Grow tables and moments, then wrap anew: DDP knows only the parameters it was given.

        Without `carry_optimiser` the moments start from zero here.
        """
        before = dict(self.model.named_parameters())
        self.model.grow(sizes)
        if self.config.carry_optimiser:
            follow_growth(self.optimiser, before, self.model)
        else:
            self.optimiser = build_optimiser(self.model, self.config)
        if self.process.share.world > 1:
            # DDP names a parameter of the model itself with a leading dot.
            own = [form for name in self.model.sharded for form in (name, f".{name}")]
            DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(  # type: ignore[no-untyped-call]
                self.model, own
            )
            # All processes count the same items, so the counts need not be sent at each step.
            self.wrapped = DistributedDataParallel(self.model, forward_sync_buffers=False)

    def n_steps(self, passes: list[Batches]) -> int:
        """All batches of all passes, or `steps_per_window` of them."""
        n_batches = sum(each.n_steps for each in passes)
        return min(self.config.steps_per_window or n_batches, n_batches)

    def fit(self, window: str, passes: list[Batches], on_step: OnStep) -> float | None:
        """Run the steps with a learning rate that restarts here."""
        self.model.train()
        n_steps = self.n_steps(passes)
        totals = torch.zeros(2, dtype=torch.float64)
        for step, batch in enumerate(islice(chain.from_iterable(passes), n_steps)):
            set_learning_rate(self.optimiser, self.config, step, n_steps)
            totals += self._step(batch, window, step)
            on_step(batch.n_global)
        return float(totals[0] / totals[1]) if n_steps else None

    def state(self) -> dict[str, Tensor]:
        """Weights and, where they are carried on, the optimiser's moments.

        Nothing else: whatever is random is drawn anew for each window and step.
        """
        moments = moments_of(self.optimiser, self.model) if self.config.carry_optimiser else {}
        return {
            **{_WEIGHTS + name: tensor for name, tensor in weights_of(self.model).items()},
            **{_MOMENTS + name: tensor for name, tensor in moments.items()},
        }

    def restore(self, sizes: dict[str, int], state: Mapping[str, Tensor]) -> None:
        """Go on from these weights and moments."""
        restore_weights(self.model, sizes, _named(state, _WEIGHTS))
        self.optimiser = build_optimiser(self.model, self.config)
        restore_moments(self.optimiser, self.model, _named(state, _MOMENTS))

    def _step(self, batch: Batch, window: str, step: int) -> Float[Tensor, "2"]:
        """One update; the sum of the loss and the number of targets over all processes."""
        purpose = (self.config.seed, "step", window, step)
        torch.manual_seed(derived_seed(*purpose, "dropout", self.process.share.rank))
        on_device = batch.to(self.process.device)
        draws = _draws(on_device, derived_seed(*purpose, "draws"))
        is_bfloat16 = uses_bfloat16(self.config, self.process)
        with torch.autocast(self.process.device.type, torch.bfloat16, enabled=is_bfloat16):
            loss, n_targets = self.wrapped(
                on_device.columns, on_device.lengths, draws, self.config.length_groups
            )
        sums = torch.stack([loss.detach().double(), n_targets.double()])
        sums = self.process.summed(sums).cpu()
        self._stop_unless_finite("loss", sums[0], window, step)
        # DDP averages gradients over the processes, which hold different numbers of targets.
        (loss * (self.process.share.world / sums[1].item())).backward()
        norm = self._clip()
        self._stop_unless_finite("gradient's norm", norm, window, step)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        return sums

    def _clip(self) -> Float[Tensor, ""]:
        """Limit the gradient's norm, which is that of all processes' rows; return what it was."""
        gradients = [(name, each.grad) for name, each in self.model.named_parameters()]
        held = [(name in self.model.sharded, each) for name, each in gradients if each is not None]
        own = [each for is_shared_out, each in held if is_shared_out]
        norm = get_total_norm([each for is_shared_out, each in held if not is_shared_out])
        if own:
            for each in own:  # a sum over the processes, where DDP's are means
                each /= self.process.share.world
            norm = (norm**2 + self.process.summed(get_total_norm(own) ** 2)).sqrt()
        clip_grads_with_norm_(self.model.parameters(), self.config.max_grad_norm, norm)
        return norm

    def _stop_unless_finite(self, name: str, value: Tensor, window: str, step: int) -> None:
        """Every process has the same value, so all stop or none."""
        if not torch.isfinite(value):
            raise TrainingError(
                f"window {window}, step {step}: the {name} is {value.item()}, nothing was updated; "
                f"lower training.learning_rate ({self.config.learning_rate}) or "
                f"training.max_grad_norm ({self.config.max_grad_norm})"
            )


def uses_bfloat16(config: TrainingConfig, process: Process) -> bool:
    """Whether a fit's matrix products are bfloat16 here."""
    if config.precision == "auto":
        return process.multiplies_bfloat16
    return config.precision == "bfloat16"


def _named(state: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in state.items()
        if name.startswith(prefix)
    }


def _draws(batch: Batch, seed: int) -> Draws:
    """Random numbers for this process's rows of a global batch."""
    share = batch.share
    rows = torch.arange(batch.n_global)[share.rank :: share.world]
    width = batch.global_items.shape[1]
    return Draws(seed, batch.global_items, batch.global_past, rows, width)
