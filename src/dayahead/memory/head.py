"""The head: scores candidates from their features and the context, learned on earlier windows."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import gelu
from torch.optim import AdamW

MOMENTS = ("step", "exp_avg", "exp_avg_sq")


@dataclass(frozen=True)
class HeadSettings:
    """Size and training of the head."""

    width: int = 64
    learning_rate: float = 3e-3
    final_rate: float = 0.1
    """Part of the learning rate that the last step of a fit has."""
    weight_decay: float = 1e-4
    batch_size: int = 64
    epochs: int = 2
    first_epochs: int = 8


@dataclass(frozen=True)
class Examples:
    """Prefixes as the head sees them."""

    features: Float[Tensor, "B C F"]
    is_candidate: Float[Tensor, "B C"]
    """bool; False where a prefix has fewer candidates."""
    context: Float[Tensor, "B X"]
    targets: Int[Tensor, " B"]
    """Columns of the items that follow; -1 where they are no candidate."""

    def take(self, rows: Int[Tensor, " R"]) -> "Examples":
        """Return some of the prefixes."""
        return Examples(
            self.features[rows], self.is_candidate[rows], self.context[rows], self.targets[rows]
        )

    @classmethod
    def cat(cls, parts: list["Examples"]) -> "Examples":
        """Join examples with equally many candidates."""
        names = ("features", "is_candidate", "context", "targets")
        return cls(*(torch.cat([getattr(part, name) for part in parts]) for name in names))


class Head(nn.Module):
    """s_j = w . f_j + v . GELU(A f_j + B x + b), of standardised features f and context x."""

    def __init__(self, n_features: int, n_context: int, width: int) -> None:
        super().__init__()
        self.linear = nn.Parameter(torch.zeros(n_features))
        self.hidden = nn.Linear(n_features, width, bias=False)
        self.gate = nn.Linear(n_context, width)
        self.out = nn.Parameter(torch.zeros(width))
        for name, size in (("features", n_features), ("context", n_context)):
            self.register_buffer(f"{name}_mean", torch.zeros(size))
            self.register_buffer(f"{name}_std", torch.ones(size))

    def standardise(self, examples: Examples) -> None:
        """Take mean and deviation of features and context from the first window."""
        features = examples.features[examples.is_candidate].double()
        for name, values in (("features", features), ("context", examples.context.double())):
            getattr(self, f"{name}_mean").copy_(values.mean(0))
            std = values.std(0, correction=0)
            getattr(self, f"{name}_std").copy_(torch.where(std > 1e-3, std, 1.0))

    def standardised(
        self, features: Float[Tensor, "B C F"], context: Float[Tensor, "B X"]
    ) -> tuple[Float[Tensor, "B C F"], Float[Tensor, "B X"]]:
        """Scale features and context; what is far out is cut off at 8 deviations."""
        context = ((context - self.context_mean) / self.context_std).clamp(-8, 8)
        return ((features - self.features_mean) / self.features_std).clamp(-8, 8), context

    def forward(
        self, features: Float[Tensor, "B C F"], context: Float[Tensor, "B X"]
    ) -> Float[Tensor, "B C"]:
        """Score candidates from standardised features and context."""
        hidden = self.hidden(features) + self.gate(context)[:, None]
        return features @ self.linear + gelu(hidden, approximate="tanh") @ self.out


class HeadTrainer:
    """Fits a head on one window after another; AdamW's moments are carried on."""

    def __init__(self, head: Head, settings: HeadSettings) -> None:
        self.head = head
        self.settings = settings
        self.optimizer = AdamW(
            head.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay
        )

    def fit(self, examples: Examples, epochs: int, generator: torch.Generator) -> float | None:
        """Minimise the listwise cross-entropy over candidates; return its mean.

        Prefixes whose next item is no candidate are left out.
        """
        [rows] = (examples.targets >= 0).nonzero(as_tuple=True)
        if not len(rows):
            return None
        order = torch.cat(
            [rows[torch.randperm(len(rows), generator=generator)] for _ in range(epochs)]
        )
        total = 0.0
        batches = order.split(self.settings.batch_size)
        for step, batch in enumerate(batches):
            for group in self.optimizer.param_groups:
                decline = (1 - self.settings.final_rate) * step / len(batches)
                group["lr"] = self.settings.learning_rate * (1 - decline)
            loss = self._step(examples.take(batch))
            total += loss * len(batch)
        return total / len(order)

    def _step(self, batch: Examples) -> float:
        scores = self.head(batch.features, batch.context)
        scores = scores.masked_fill(~batch.is_candidate, -torch.inf)
        loss = nn.functional.cross_entropy(scores, batch.targets)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return float(loss)

    def state_dict(self) -> dict[str, Tensor]:
        """The head's weights, and AdamW's moments once there are any."""
        state = {f"head.{name}": value for name, value in self.head.state_dict().items()}
        for name, parameter in self.head.named_parameters():
            moments = self.optimizer.state.get(parameter, {})
            state |= {f"moments.{name}.{key}": value for key, value in moments.items()}
        return {name: value.clone() for name, value in state.items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Replace weights and moments."""
        prefix = "head."
        self.head.load_state_dict(
            {name.removeprefix(prefix): v for name, v in state.items() if name.startswith(prefix)}
        )
        self.optimizer.state.clear()
        for name, parameter in self.head.named_parameters():
            key = f"moments.{name}."
            if key + MOMENTS[0] in state:
                self.optimizer.state[parameter] = {m: state[key + m].clone() for m in MOMENTS}
