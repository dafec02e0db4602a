"""A linear map and what follows it, into and out of the body."""

from collections.abc import Callable

from torch import Tensor, nn

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "none": nn.Identity,
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "gelu": nn.GELU,
}


class Projection(nn.Linear):
    """[..., n_in] to [..., n_out]: an activation of a linear map."""

    def __init__(self, n_in: int, n_out: int, activation: str) -> None:
        super().__init__(n_in, n_out)
        self.activation = ACTIVATIONS[activation]()

    def forward(self, input: Tensor) -> Tensor:
        """Map, then activate."""
        activated: Tensor = self.activation(super().forward(input))
        return activated


def projection(n_in: int, n_out: int, activation: str) -> nn.Module:
    """Make a projection, or nothing where sizes are equal and nothing is to be activated."""
    if n_in == n_out and activation == "none":
        return nn.Identity()
    return Projection(n_in, n_out, activation)
