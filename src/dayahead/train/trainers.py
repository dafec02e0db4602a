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

from dayahead.config.params import TrainingConfig
from dayahead.core.columns import ITEM_ID
from dayahead.core.errors import TrainingError
from dayahead.core.seeds import derived_seed
from dayahead.distributed.process import Process, Rank
from dayahead.model.baselines import CountingModel
from dayahead.model.checkpoint import restore_weights, weights_of
from dayahead.model.next_item import NextItemModel
from dayahead.model.rng import StepRandom
from dayahead.train.batches import Batch, Batches
from dayahead.train.optimizer import (
    build_optimizer,
    follow_growth,
    moments_of,
    restore_moments,
    set_learning_rate,
)

_WEIGHTS, _MOMENTS = "weights.", "moments."
OnStep = Callable[[int], object]
"""Called after each step with its number of sessions."""


class Trainer(Protocol):
    """An architecture in the window loop."""

    fit_rank: Rank
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
class CountTrainer:
    """Counts a window once, on every process alike."""

    model: CountingModel
    fit_rank = Rank(index=0, world_size=1)

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


class GradientTrainer:
    """Follows the gradient of a next-item model, step by step, the same on every process."""

    def __init__(self, model: NextItemModel, config: TrainingConfig, process: Process) -> None:
        self.model = model.to(process.device)
        self.config = config
        self.process = process
        self.fit_rank = process.rank
        self.optimizer = build_optimizer(self.model, config)
        self.wrapped: nn.Module = self.model

    def grow(self, sizes: dict[str, int]) -> None:
        """Grow tables and moments, then wrap anew: DDP knows only the parameters it was given.

        Without `carry_optimiser` the moments start from zero here.
        """
        before = dict(self.model.named_parameters())
        self.model.grow(sizes)
        if self.config.carry_optimizer:
            follow_growth(self.optimizer, before, self.model)
        else:
            self.optimizer = build_optimizer(self.model, self.config)
        if self.process.rank.world_size > 1:
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
            set_learning_rate(self.optimizer, self.config, step, n_steps)
            totals += self._step(batch, window, step)
            on_step(batch.n_global)
        return float(totals[0] / totals[1]) if n_steps else None

    def state(self) -> dict[str, Tensor]:
        """Weights and, where they are carried on, the optimiser's moments.

        Nothing else: whatever is random is drawn anew for each window and step.
        """
        moments = moments_of(self.optimizer, self.model) if self.config.carry_optimizer else {}
        return {
            **{_WEIGHTS + name: tensor for name, tensor in weights_of(self.model).items()},
            **{_MOMENTS + name: tensor for name, tensor in moments.items()},
        }

    def restore(self, sizes: dict[str, int], state: Mapping[str, Tensor]) -> None:
        """Go on from these weights and moments."""
        restore_weights(self.model, sizes, _named(state, _WEIGHTS))
        self.optimizer = build_optimizer(self.model, self.config)
        restore_moments(self.optimizer, self.model, _named(state, _MOMENTS))

    def _step(self, batch: Batch, window: str, step: int) -> Float[Tensor, "2"]:
        """One update; the sum of the loss and the number of targets over all processes."""
        purpose = (self.config.seed, "step", window, step)
        torch.manual_seed(derived_seed(*purpose, "dropout", self.process.rank.index))
        on_device = batch.to(self.process.device)
        draws = _draws(on_device, derived_seed(*purpose, "draws"))
        is_bfloat16 = uses_bfloat16(self.config, self.process)
        with torch.autocast(self.process.device.type, torch.bfloat16, enabled=is_bfloat16):
            loss, n_targets = self.wrapped(
                on_device.columns, on_device.lengths, draws, self.config.length_groups
            )
        sums = torch.stack([loss.detach().double(), n_targets.double()])
        sums = self.process.all_reduce(sums).cpu()
        self._stop_unless_finite("loss", sums[0], window, step)
        # DDP averages gradients over the processes, which hold different numbers of targets.
        (loss * (self.process.rank.world_size / sums[1].item())).backward()
        norm = self._clip()
        self._stop_unless_finite("gradient's norm", norm, window, step)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return sums

    def _clip(self) -> Float[Tensor, ""]:
        """Limit the gradient's norm, which is that of all processes' rows; return what it was."""
        gradients = [(name, each.grad) for name, each in self.model.named_parameters()]
        held = [(name in self.model.sharded, each) for name, each in gradients if each is not None]
        own = [each for is_shared_out, each in held if is_shared_out]
        norm = get_total_norm([each for is_shared_out, each in held if not is_shared_out])
        if own:
            for each in own:  # a sum over the processes, where DDP's are means
                each /= self.process.rank.world_size
            norm = (norm**2 + self.process.all_reduce(get_total_norm(own) ** 2)).sqrt()
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


def _draws(batch: Batch, seed: int) -> StepRandom:
    """Random numbers for this process's rows of a global batch."""
    rank = batch.rank
    rows = torch.arange(batch.n_global)[rank.index :: rank.world_size]
    width = batch.global_items.shape[1]
    return StepRandom(seed, batch.global_items, batch.global_past, rows, width)
