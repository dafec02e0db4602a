"""What a body sees, proven by changing its inputs rather than trusted.

Hundreds of architectures of the zoo can be named, and nothing but their numbers tells which of
them let an event see a later one, attend to padding or mix the sessions of a batch.
"""

from collections.abc import Iterator

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

N_SPLITS = 16
"""Places in a session at which past and future are told apart; all of them in a short one."""
TOLERANCE = 2e-6
"""Of the largest output: what sums in another order may differ by."""


class Probe:
    """A batch of one session in many versions, and what a network makes of it.

    Rows are the session whole; whole, with every event changed from a split on, for each split;
    its first half; and that half with padding that is not zero.
    """

    def __init__(self, network: nn.Module, d_model: int, max_length: int) -> None:
        noise = torch.Generator().manual_seed(0)
        session, other = torch.randn(2, max_length, d_model, generator=noise)
        self.splits = sorted(
            {round(s) for s in torch.linspace(1, max_length - 1, N_SPLITS).tolist()}
        )
        self.half = max(1, max_length // 2)
        changed = [torch.cat([session[:split], 10 * other[split:]]) for split in self.splits]
        halved = torch.cat([session[: self.half], torch.zeros_like(session[self.half :])])
        padded = torch.cat([session[: self.half], 10 * other[self.half :]])
        self.inputs: Float[Tensor, "R L D"] = torch.stack([session, *changed, halved, padded])
        lengths = [max_length] * (1 + len(changed)) + [self.half] * 2
        steps = torch.arange(max_length)
        self.is_event: Bool[Tensor, "R L"] = steps < torch.tensor(lengths)[:, None]
        self.network = network

    @torch.no_grad()
    def faults(self, *, causal: bool) -> Iterator[str]:
        """Tell what keeps the network from being a body, in the order of what to mend first."""
        was_training = self.network.training
        # Cloned, for some types (ctrl) scale what they are given where it stands.
        outputs = self.network.eval()(self.inputs.clone(), self.is_event)
        if outputs.shape != self.inputs.shape or not outputs.isfinite().all():
            expected, found = list(self.inputs.shape), list(outputs.shape)
            yield f"it writes {found}, or what is no number, where {expected} is expected"
            return
        whole, changed, (halved, padded) = outputs[0], outputs[1:-2], outputs[-2:]
        alone = self.network(
            self.inputs[-2:-1, : self.half].clone(), self.is_event[-2:-1, : self.half]
        )
        self.network.train(was_training)
        noise = TOLERANCE * whole.abs().max()
        sees_later = [
            bool((version - whole)[:split].abs().max() > noise)
            for version, split in zip(changed, self.splits, strict=True)
        ]
        if causal and any(sees_later):
            yield "it lets an event see a later one"
        if (halved - padded)[: self.half].abs().max() > noise:
            yield "it attends to padding"
        if (halved[: self.half] - alone[0]).abs().max() > 10 * noise:
            yield "what it says of a session depends on the others of the batch or on their length"
        if not causal and not all(sees_later):
            yield "it sees the past only"
