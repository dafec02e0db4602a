"""Trainers, which fit a model on one window after another, and their states."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import chain, islice

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from dayahead.config.params import TrainingConfig
from dayahead.core.errors import ConfigError, ModelFileError, TrainingError
from dayahead.core.phases import in_phase, phase, steps
from dayahead.core.prefixes import prefixed, with_prefix
from dayahead.distributed.collectives import sum_gradients
from dayahead.distributed.process import Process, Rank
from dayahead.model.checkpoint import WEIGHTS, restore_weights, weights_of
from dayahead.model.losses import Negatives, items_read
from dayahead.model.model import CountingModel
from dayahead.model.next_item import NextItemModel
from dayahead.model.rng import StepRandom, derived_seed
from dayahead.train.batches import Batch, LoadedBatches
from dayahead.train.optimizer import build_optimizer, replace_grown, set_learning_rate
from dayahead.train.streaming import Batches

BUCKET_MIB = 25
"""MiB of gradients exchanged at once: DDP's default, but for the first bucket too."""
MOMENT = "moments."
"""Prefix of the optimizer's tensors in a state; the model's have WEIGHTS."""
OnStep = Callable[[int], object]
"""Called after each step with its number of sessions."""


@dataclass
class CountingTrainer:
    """Counts a window once; every process counts all of it."""

    model: CountingModel
    ends: Mapping[str, int]
    """End of each window, microseconds since 1970."""
    rank = Rank(index=0, world_size=1)
    """All rows: with a world size of 1, `fit` takes the whole of each global batch."""

    def grow(self, sizes: dict[str, int]) -> None:
        """Make room for the first `sizes[column]` values of each vocabulary."""
        self.model.grow(sizes)

    def n_steps(self, epochs: list[Batches]) -> int:
        """Return the batches of one epoch: a second one would count everything twice."""
        return epochs[0].n_steps

    def fit(self, window: str, epochs: list[Batches], on_step: OnStep) -> float | None:
        """Count every session once; return the loss, if there is any."""
        counted = epochs[0].counted()
        self.model.read = counted.read
        self.model.start_window(self.ends[window])
        for batch in steps(counted):
            self.model.count(batch.columns, batch.lengths)
            on_step(batch.n_global)
        return self.model.finish_window()

    def follow(self, window: str, sizes: dict[str, int], sessions: LoadedBatches) -> None:
        """Let the model count a window before it is fitted on."""
        self.model.follow(sizes, sessions.padded(), self.ends[window])

    def state(self) -> dict[str, Tensor]:
        """Return the counts."""
        return weights_of(self.model)

    def restore(self, sizes: dict[str, int], state: Mapping[str, Tensor]) -> None:
        """Load the counts of a trainer whose vocabularies had these sizes."""
        restore_weights(self.model, sizes, state)


class GradientTrainer:
    """Minimizes the loss of a next-item model by AdamW or Adagrad; the same steps on every process.

    Raises:
        ConfigError: the device cannot compute this architecture in bfloat16.
    """

    def __init__(self, model: NextItemModel, config: TrainingConfig, process: Process) -> None:
        self.is_bfloat16 = process.uses_bfloat16(config.precision)
        if self.is_bfloat16:
            _check_bfloat16(model.config.architecture, process)
        self.model = model.to(process.device)
        self.config = config
        self.process = process
        self.rank = process.rank
        self.optimizer = build_optimizer(self.model, config)
        self.carries_optimizer = config.carry_optimizer and not config.starts_afresh
        """Whether a fit starts from the optimizer state of the fit before."""
        self.wrapped: nn.Module = self.model
        """The model, in DDP where there are several processes."""
        self.is_updated = False
        """Whether the weights differ from the initial ones."""

    def grow(self, sizes: dict[str, int]) -> None:
        """Make room for the first `sizes[column]` values of each vocabulary; wrap again for DDP.

        Unless it is carried on, the optimizer starts from zero here.
        """
        before = dict(self.model.named_parameters())
        self.model.grow(sizes)
        self.follow_growth(before)

    def follow_growth(self, before: dict[str, nn.Parameter]) -> None:
        """Update the optimizer after the model has grown; `before` are its old parameters."""
        if self.carries_optimizer:
            replace_grown(self.optimizer, before, self.model)
        else:
            self.optimizer = build_optimizer(self.model, self.config)
        # DDP registers parameters when it is built, so a model that has grown is wrapped again.
        self.wrap()

    def wrap(self) -> None:
        """Wrap the model's current parameters for DDP, where there are several processes."""
        if self.process.rank.world_size > 1:
            ignored = self.model.sharded
            if self._updates_few_rows:  # whose gradients `_sum_row_gradients` sums
                ignored = self.model.item_tables
                for name in sorted(ignored):  # as DDP does at first, with all others
                    self.process.copy_from_main(self.model.get_parameter(name).detach())
            # DDP names a parameter of the model itself with a leading dot.
            DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(  # type: ignore[no-untyped-call]
                self.model, [form for name in ignored for form in (name, f".{name}")]
            )
            # No fit changes a buffer, so they need no broadcast at each step.
            self.wrapped = DistributedDataParallel(
                self.model,
                forward_sync_buffers=False,
                gradient_as_bucket_view=True,
                bucket_cap_mb=BUCKET_MIB,
            )
            # Not DDP's mean: the loss is divided by the number of targets of all ranks.
            self.wrapped.register_comm_hook(None, sum_gradients)

    def n_steps(self, epochs: list[Batches]) -> int:
        """Return the batches of all epochs, or `steps_per_window`."""
        n_batches = sum(each.n_steps for each in epochs)
        return min(self.config.steps_per_window or n_batches, n_batches)

    def fit(self, window: str, epochs: list[Batches], on_step: OnStep) -> float | None:
        """Fit on a window, where the learning rate restarts; return the mean loss per target."""
        self.model.train()
        n_steps = self.n_steps(epochs)
        totals = torch.zeros(2, dtype=torch.float64)
        batches = islice(chain.from_iterable(epochs), n_steps)
        self.model.set_sparse_gradients(are_sparse=self._updates_few_rows)
        for step, batch in enumerate(steps(batches)):
            set_learning_rate(self.optimizer, self.config, step, n_steps)
            totals += self._step(batch, window, step)
            on_step(batch.n_global)
        with phase("optimizer"):
            self.optimizer.refresh()
        return float(totals[0] / totals[1]) if totals[1] > 0 else None

    @property
    def _updates_few_rows(self) -> bool:
        """Whether a step updates only the rows of the item tables that the global batch reads.

        On a GPU a pass over the whole table takes less than choosing rows.
        """
        is_on_cpu = self.process.device.type == "cpu"
        return is_on_cpu and self.model.shard.is_whole and self.model.reads_few_items

    def _step(self, batch: Batch, window: str, step: int) -> Float[Tensor, "2"]:
        """Make one update; return the sum of the loss and the number of targets over all ranks.

        The batch stays on the CPU, where the model takes the positions to predict and their sizes
        from it without waiting for the GPU.
        """
        # Random streams are keyed by window and step, so a resumed run draws the same numbers.
        purpose = (self.config.seed, "step", window, step)
        self._seed_dropout(derived_seed(*purpose, "dropout", self.process.rank.index))
        random = _step_random(batch, derived_seed(*purpose, "draws"))
        negatives = rows = None
        if self._updates_few_rows:
            negatives, rows = self._sampled(random)
        with torch.autocast(self.process.device.type, torch.bfloat16, enabled=self.is_bfloat16):
            loss, n_targets = self.wrapped(
                batch.columns, batch.lengths, random, self.config.length_groups, negatives
            )
        sums = torch.stack([loss.detach().double(), n_targets.double()])
        self.process.all_reduce(sums)
        with phase("backward"):  # both gradients and numbers of targets are summed over ranks
            # The divisor stays on the device: a Python number would make the host wait. It is 0
            # where no event of the batch is of a type to predict.
            (loss * (1 / sums[1].clamp(min=1e-9)).to(loss.dtype)).backward()
            if rows is not None:
                self._sum_row_gradients(rows)
        norm = self._clip_gradients()
        # The only point in a step where the host waits for the GPU.
        found = torch.cat([sums, norm.double()[None]]).cpu()
        self._check_finite("loss", found[0], window, step)
        self._apply(found[2], window, step)
        return found[:2]

    @in_phase("optimizer")
    def _sampled(self, random: StepRandom) -> tuple[Negatives, Int[Tensor, " k"]]:
        """Return a step's negatives and all rows that it reads, which are brought up to date."""
        negatives = self.model.negatives(random)
        assert negatives is not None
        rows = items_read(random, negatives, self.model.n_items)
        self.optimizer.refresh(rows)
        return negatives, rows

    def _sum_row_gradients(self, rows: Int[Tensor, " k"]) -> None:
        """Sum the item tables' gradients over all ranks, of the rows that the global batch reads.

        DDP would send a gradient of every row.
        """
        if self.process.rank.world_size == 1:
            return
        for name in sorted(self.model.item_tables):
            table = self.model.get_parameter(name)
            if not table.requires_grad:
                continue
            sums = table.new_zeros(len(rows), table.shape[1])
            if table.grad is not None:  # of the rows that this rank's sessions read
                own = table.grad.coalesce()
                sums[torch.searchsorted(rows, own.indices()[0])] = own.values()
            self.process.all_reduce(sums)
            table.grad = torch.sparse_coo_tensor(
                rows[None], sums, table.shape, is_coalesced=True, check_invariants=False
            )

    def _seed_dropout(self, seed: int) -> None:
        """Seed this device only: torch.manual_seed seeds all, which takes half a millisecond."""
        torch.default_generator.manual_seed(seed)
        if self.process.device.type == "cuda":
            torch.cuda.manual_seed(seed)

    def update(self, window: str, step: int) -> None:
        """Clip the gradients, take an optimizer step by them, and drop them."""
        self._apply(self._clip_gradients(), window, step)

    @in_phase("optimizer")
    def _apply(self, norm: Float[Tensor, ""], window: str, step: int) -> None:
        """Take an optimizer step by the gradients, whose norm was this, and drop them."""
        self._check_finite("gradient norm", norm, window, step)
        self.is_updated = True
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    @in_phase("optimizer")
    def _clip_gradients(self) -> Float[Tensor, ""]:
        """Limit the gradient norm, over the sharded rows of all ranks too; return it unclipped."""
        sharded = {id(self.model.get_parameter(name)) for name in self.model.sharded}
        groups = [group["params"] for group in self.optimizer.param_groups]
        parameters = [each for each in chain.from_iterable(groups) if each.grad is not None]
        # Unsharded gradients are equal on all ranks; those of sharded rows add up over ranks.
        norm = get_total_norm([_values(each) for each in parameters if id(each) not in sharded])
        if sharded:
            own = get_total_norm([each.grad for each in parameters if id(each) in sharded])
            norm = (norm**2 + self.process.all_reduce(own**2)).sqrt()
        clip_grads_with_norm_(parameters, self.config.max_grad_norm, norm)
        return norm

    def _check_finite(self, name: str, value: Tensor, window: str, step: int) -> None:
        """Stop before an update with a non-finite value; it is the same on every process."""
        if not torch.isfinite(value):
            raise TrainingError(
                f"window {window}, step {step}: the {name} is {value.item()}, nothing was updated; "
                f"{self._cure()}"
            )

    def _cure(self) -> str:
        """Settings that help against a non-finite value; before any update rates have no effect."""
        training, model, loss = self.config, self.model.config, self.model.loss_config
        is_wide = training.precision == "float32"
        precision = [] if is_wide else [f"set training.precision ({training.precision}) to float32"]
        if self.is_updated:
            cures = [
                f"lower training.learning_rate ({training.learning_rate}) or "
                f"training.max_grad_norm ({training.max_grad_norm})",
                f"raise training.warmup_steps ({training.warmup_steps})",
                *precision,
            ]
            return ", or ".join(cures)
        cures = [
            *([f"correct loss.name ({loss.name})"] if loss.is_packaged else []),
            *precision,
            f"raise model.item_init_std ({model.item_init_std}) or model.init_std "
            f"({model.init_std})",
        ]
        if model.architecture != "gpt2":
            cures.append(f"set model.architecture ({model.architecture}) to gpt2")
        return f"it is so before the first update, with initial weights: {', or '.join(cures)}"

    def follow(self, window: str, sizes: dict[str, int], sessions: LoadedBatches) -> None:
        """Do nothing: a network alone changes only when it is fitted."""

    def state(self) -> dict[str, Tensor]:
        """Return the weights and, where it is carried on, the optimizer's state, on the CPU.

        Nothing else is needed: random streams are keyed by window and step.
        """
        return prefixed(weights_of(self.model), WEIGHTS) | self.moments()

    def moments(self) -> dict[str, Tensor]:
        """Return the optimizer's state where it is carried on."""
        return {
            f"{MOMENT}{name}.{key}": value.cpu().contiguous()
            for name, parameter in self.model.named_parameters()
            for key, value in self.optimizer.state.get(parameter, {}).items()
            if self.carries_optimizer
        }

    def restore(self, sizes: dict[str, int], state: Mapping[str, Tensor]) -> None:
        """Load the state of a trainer whose vocabularies had these sizes."""
        restore_weights(self.model, sizes, with_prefix(state, WEIGHTS))
        self.restore_moments(state)

    def restore_moments(self, state: Mapping[str, Tensor]) -> None:
        """Load the optimizer's part of a state.

        Raises:
            ModelFileError: it is the state of another network.
        """
        self.is_updated = True
        self.optimizer = build_optimizer(self.model, self.config)
        parameters = dict(self.model.named_parameters())
        for name, value in with_prefix(state, MOMENT).items():
            parameter, _, key = name.rpartition(".")
            held = parameters.get(parameter)
            if held is None or value.shape not in {held.shape, ()}:
                raise ModelFileError(f"{name}: no moment of a weight of the network")
            # A copy: the optimizer changes its state in place.
            self.optimizer.state[held][key] = value.to(held.device, copy=True)


def _check_bfloat16(architecture: str, process: Process) -> None:
    """Raise ConfigError if the device cannot compute this architecture in bfloat16."""
    is_cpu = process.device.type == "cpu"
    if architecture == "lstm" and is_cpu and not torch.cpu.get_capabilities().get("avx512_f"):
        raise ConfigError(
            "params.yaml: training.precision: bfloat16: an lstm needs a CPU with AVX-512 for it, "
            "and this one has none; set training.precision to auto or float32, or "
            "model.architecture to gru"
        )


def _values(parameter: nn.Parameter) -> Tensor:
    """Return the values of a gradient; those of a sparse one are summed in place first."""
    assert parameter.grad is not None
    if not parameter.grad.is_sparse:
        return parameter.grad
    parameter.grad = parameter.grad.coalesce()
    return parameter.grad.values()


def _step_random(batch: Batch, seed: int) -> StepRandom:
    rank = batch.rank
    rows = torch.arange(batch.n_global)[rank.index :: rank.world_size]
    width = batch.global_items.shape[1]
    marks = batch.global_marks
    return StepRandom(seed, batch.global_items, batch.global_past, rows, width, marks)
