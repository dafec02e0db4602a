"""Training of the head on one window after another."""

import math
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.optim import AdamW

from dayahead.config.memory import MemoryConfig
from dayahead.core.errors import TrainingError
from dayahead.core.phases import in_phase, steps
from dayahead.memory.gradients import gradients_in_parts, loss_of
from dayahead.memory.head import Head
from dayahead.memory.head_examples import Examples

FINAL_RATE = 0.1
"""Learning rate at the end of a fit, as a fraction of that at the start."""
GATE_FACTOR = 10.0
"""Learning rate of the gate's few parameters, as a multiple of that of the others."""
MOMENTS = ("step", "exp_avg", "exp_avg_sq")


@dataclass(frozen=True)
class JointNetwork:
    """A network trained along with the head: its feature is recomputed at every step."""

    first: int
    """Index of the first new example; those before it are replayed with their stored features."""
    column: int
    """Index of the network's feature."""
    feature: Callable[[Int[Tensor, " k"]], Float[Tensor, "k C"]]
    """The network's standardised feature of new examples counted from `first`."""
    update: Callable[[int, int], None]
    """Update the network from its gradients, given the step's number and the number of steps."""

    def refresh(self, batch: Examples, rows: Int[Tensor, " B"]) -> Examples:
        """Return examples, these rows of all, with the network's feature as it is now."""
        is_new = rows >= self.first
        if not is_new.any():
            return batch
        before, feature, after = (
            batch.features[..., part]
            for part in (slice(self.column), self.column, slice(self.column + 1, None))
        )
        feature = feature.clone()
        feature[is_new] = self.feature(rows[is_new] - self.first)
        return replace(batch, features=torch.cat([before, feature[..., None], after], dim=-1))


class HeadTrainer:
    """Minimises the listwise cross-entropy over candidates by AdamW; keeps moments between fits."""

    def __init__(self, head: Head, config: MemoryConfig) -> None:
        self.head = head
        self.config = config
        groups = [{"params": list(head.parameters(recurse=False)), "factor": 1.0}]
        if (gate := head.gate) is not None:
            groups += [
                {"params": [gate.linear], "factor": GATE_FACTOR},
                # No decay: at a bias of 0, half of the probability would go to the session's own
                # items, and nothing speaks for that value.
                {"params": [gate.bias], "factor": GATE_FACTOR, "weight_decay": 0.0},
            ]
        self.optimizer = AdamW(groups, weight_decay=config.weight_decay)

    @in_phase("head")
    def fit(
        self,
        examples: Examples,
        epochs: int,
        generator: torch.Generator,
        network: JointNetwork | None = None,
    ) -> float | None:
        """Train on the examples, whose targets are all candidates; return the mean loss, or None.

        The mean is weighted by the examples' weights.

        A `network` that is given learns from the same loss.

        Raises:
            TrainingError: a loss is not finite.
        """
        joint = network and nullcontext(partial(self._joint_gradients, network))
        batches = self._batches(len(examples), epochs, generator)
        total = 0.0
        with joint or gradients_in_parts(self.head) as gradients:
            for step, rows in enumerate(steps(batches)):
                loss = gradients(examples, rows)
                self._step(loss, step / len(batches))
                total += loss * float(examples.weights[rows].sum())
                if network:
                    network.update(step, len(batches))
        weight = float(examples.weights.sum())
        return total / (epochs * weight) if weight else None

    def _batches(self, n: int, epochs: int, generator: torch.Generator) -> list[Tensor]:
        """Draw the rows of all steps: the decay of the learning rate needs their number."""
        size = self.config.batch_size_of(n)
        orders = [torch.randperm(n, generator=generator) for _ in range(epochs)]
        return [rows for order in orders for rows in torch.split(order, size)] if n else []

    def _joint_gradients(self, network: JointNetwork, examples: Examples, rows: Tensor) -> float:
        """Set the gradients of head and network; return the loss."""
        batch = network.refresh(examples.take(rows).single(), rows)
        loss = loss_of(self.head, batch, float(batch.weights.sum()))
        self.optimizer.zero_grad()
        torch.autograd.backward(loss)
        return loss.item()

    def _step(self, loss: float, done: float) -> None:
        """Take a step by the gradients, after this share of all steps."""
        if not math.isfinite(loss):
            raise TrainingError(
                f"the loss of the head is {loss}; lower memory.learning_rate "
                f"({self.config.learning_rate})"
            )
        rate = self.config.learning_rate * (1 - (1 - FINAL_RATE) * done)
        for group in self.optimizer.param_groups:
            group["lr"] = group["factor"] * rate
        self.optimizer.step()

    def state_dict(self) -> dict[str, Tensor]:
        """AdamW's moments by parameter, once there are any."""
        return {
            f"{name}.{moment}": self.optimizer.state[parameter][moment]
            for name, parameter in self.head.named_parameters()
            for moment in MOMENTS
            if parameter in self.optimizer.state
        }

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Replace the moments."""
        self.optimizer.state.clear()
        for name, parameter in self.head.named_parameters():
            if f"{name}.{MOMENTS[0]}" in state:
                # AdamW changes its moments in place; the caller's state must not change with them.
                moments = {moment: state[f"{name}.{moment}"].clone() for moment in MOMENTS}
                self.optimizer.state[parameter] = moments
