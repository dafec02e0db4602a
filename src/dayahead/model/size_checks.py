"""Limits the size of a network built from config.json to that of the stored tensors."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod
from threading import get_ident
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.overrides import TorchFunctionMode

from dayahead.model.tensor_files import Layout

VARIANTS = 4
"""Maximum number of networks built until one passes the causality check."""
SPARE = 1 << 20
"""Number of elements up to which any tensor may be created, also one that is no weight."""


@contextmanager
def weights_bounded(state: Mapping[str, Layout]) -> Iterator[None]:
    """Refuse, in this thread, to build a network with far more weights than a state.

    Settings are not checked by name: any field of model.config may ask for large tensors.

    Raises:
        ValueError: the network would be too large; nothing of that size has been allocated.
    """
    limit, thread, n_weights = VARIANTS * sum(prod(e.shape) for e in state.values()), get_ident(), 0

    def count(_module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        nonlocal n_weights
        # The hook is global: other threads may build models meanwhile.
        if get_ident() == thread and parameter is not None:
            n_weights += parameter.numel()
            if n_weights > limit:
                raise _refusal(f"{name} of {list(parameter.shape)}")

    hook = register_module_parameter_registration_hook(count)
    try:
        with _CreationBounded(max(limit, SPARE)):
            yield
    finally:
        hook.remove()


class _CreationBounded(TorchFunctionMode):
    """Refuses to create a tensor of more than `limit` elements."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        """Call the function unless it creates too large a tensor."""
        kwargs = kwargs or {}
        if func in {torch.empty, torch.zeros, torch.ones, torch.full, torch.rand, torch.randn}:
            sizes = kwargs.get("size", args[0] if args and not isinstance(args[0], int) else args)
            if prod(sizes) > self.limit:
                raise _refusal(f"a tensor of {list(sizes)}")
        return func(*args, **kwargs)


def _refusal(what: str) -> ValueError:
    return ValueError(f"config.json: {what}: its sizes are not those of the tensors")
