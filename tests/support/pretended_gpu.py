"""A pretended GPU: tensors that compute on the CPU, say they are on cuda:0 and are held to it.

What a GPU refuses (a CPU tensor beside a CUDA one, numpy) is recorded as a fault and computed all
the same, so that one run lists every fault. Kernels and waits of the host are counted by the line
of source that caused them.
"""

import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.utils._python_dispatch import return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map

GPU = torch.device("cuda", 0)
FACTORIES = (
    *("arange", "empty", "eye", "full", "linspace", "ones", "rand", "randint", "randn"),
    *("randperm", "tensor", "zeros"),
)
ALLOCATIONS = {"empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "detach"}
WAITS = {
    *("_local_scalar_dense", "nonzero", "masked_select", "bincount", "equal", "is_nonzero"),
    *("_unique2", "unique_dim", "unique_consecutive"),
}
"""Operators whose result, or its size, the host waits for."""
INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index"}
FEW_SCALARS = {"cat", "stack", "embedding", "gather", "scatter"}
"""Operators that refuse even a CPU tensor without dimensions."""
OF_CUDA: dict[str, Callable[..., Any]] = {
    "is_available": lambda: True,
    "device_count": lambda: 1,
    "set_device": lambda device: None,
    "get_device_name": lambda device: "pretended",
    "is_bf16_supported": lambda including_emulation=True: True,
}
COLLECTIVES = ("all_reduce", "broadcast", "all_to_all_single")
SOURCES = ("/dayahead/", "/transformers/", "/torch/optim/", "/torch/nn/utils/", "/tests/")


@dataclass
class Trace:
    """What ran on the pretended GPU, by operator or by cause and line of source."""

    faults: Counter[str] = field(default_factory=Counter)
    """What a GPU would have refused, or computed otherwise than asked."""
    waits: Counter[str] = field(default_factory=Counter)
    """For which the host waits until the GPU has done all that it was given."""
    kernels: Counter[str] = field(default_factory=Counter)

    def note(self, counter: Counter[str], what: str) -> None:
        """Count an event at the line of ours, or else of a library, that caused it."""
        stack = traceback.extract_stack()
        ours = (f for f in reversed(stack) if f.filename != __file__)
        frame = next((f for f in ours if any(name in f.filename for name in SOURCES)), stack[0])
        counter[f"{what} | {frame.filename.split('/', 2)[-1]}:{frame.lineno} {frame.line}"] += 1

    def clear(self) -> None:
        """Forget what was counted."""
        for counter in (self.faults, self.waits, self.kernels):
            counter.clear()


_traces = [Trace()]


class CudaTensor(Tensor):
    """A CPU tensor (`held`) that claims to be on cuda:0."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> "CudaTensor":
        made: CudaTensor = Tensor._make_wrapper_subclass(
            cls, held.shape, held.stride(), held.storage_offset(), dtype=held.dtype
        )
        made.held = held
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl
    device = property(lambda self: GPU)
    is_cuda = property(lambda self: True)
    is_cpu = property(lambda self: False)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return _dispatch(func, args, kwargs or {})

    def __repr__(self) -> str:
        return f"CudaTensor({self.held})"

    def tolist(self) -> Any:
        _wait("tolist")
        return self.held.tolist()

    def numpy(self, *, force: bool = False) -> Any:
        _traces[-1].note(_traces[-1].faults, "numpy of a CUDA tensor")
        return self.held.numpy()

    def __array__(self, dtype: Any = None) -> Any:
        return self.numpy()


def _wait(what: str) -> None:
    _traces[-1].note(_traces[-1].waits, what)


def _is_gpu(device: Any) -> bool:
    return device is not None and torch.device(device).type == "cuda"


def _on_cpu(value: Any) -> Any:
    if isinstance(value, CudaTensor):
        return value.held
    return torch.device("cpu") if isinstance(value, torch.device) else value


def _dispatch(func: Any, args: Any, kwargs: Any) -> Any:
    name, trace = func.overloadpacket.__name__, _traces[-1]
    leaves = tree_leaves((args, kwargs))
    if fault := _fault(func, name, args, leaves):
        trace.note(trace.faults, f"{func}: {fault}")
    into = args[0] if args and isinstance(args[0], Tensor) else None
    if name == "copy_" and type(args[0]) is not type(args[1]) and not (args[2:] and args[2]):
        _wait("copy_ between devices")
    if name in WAITS or _reads_mask(name, args):
        _wait(name)
    if func.namespace == "aten" and not func.is_view and name not in ALLOCATIONS:
        trace.kernels[name] += 1
    found = func(*tree_map(_on_cpu, args), **tree_map(_on_cpu, kwargs))
    if name == "copy_" and not isinstance(into, CudaTensor):
        return into
    wrapped = tree_map(lambda each: CudaTensor(each) if type(each) is Tensor else each, found)
    return return_and_correct_aliasing(func, args, kwargs, wrapped)


def _fault(func: Any, name: str, args: Any, leaves: list[Any]) -> str | None:
    """What a GPU would say of the devices of these arguments."""
    on_cpu = [each for each in leaves if isinstance(each, Tensor) and type(each) is not CudaTensor]
    on_gpu = [each for each in leaves if type(each) is CudaTensor]
    if name in INDEXING and type(args[0]) is CudaTensor:
        if any(each is index for each in on_cpu for index in args[1]):
            _wait(f"{name} with an index on the CPU")
        on_cpu = [each for each in on_cpu if all(each is not index for index in args[1])]
    if name == "copy_" or not (on_cpu and on_gpu):
        return None
    is_strict = name in FEW_SCALARS or name.startswith("_fused")
    shapes = [tuple(each.shape) for each in on_cpu if each.dim() > 0 or is_strict]
    return f"CPU tensors {shapes} beside CUDA ones" if shapes else None


def _reads_mask(name: str, args: Any) -> bool:
    """Whether an index is a mask, whose `nonzero` is read; a number is put in without."""
    if name not in INDEXING:
        return False
    is_number = len(args) > 2 and args[2].dim() == 0
    masks = [each for each in args[1] if each is not None and each.dtype == torch.bool]
    return bool(masks) and not is_number


def _factory(name: str) -> Callable[..., Tensor]:
    real = getattr(torch, name)

    def made(*args: Any, **kwargs: Any) -> Tensor:
        if not _is_gpu(kwargs.get("device")):
            return real(*args, **kwargs)
        trace = _traces[-1]
        if kwargs.get("generator") is not None:
            trace.note(trace.faults, f"{name}: a CPU generator of CUDA numbers")
        if name == "tensor":
            _wait("tensor from a number of the host")
        elif name != "empty":
            trace.kernels[name] += 1
        held = real(*args, **kwargs | {"device": "cpu"})
        return CudaTensor(held.detach()).requires_grad_(held.requires_grad)

    return made


def _to(real: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def to(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        given = [*args, *kwargs.values()]
        devices = [d for d in given if isinstance(d, str | torch.device)]
        devices += [like.device for like in given if isinstance(like, Tensor)]
        is_async = kwargs.get("non_blocking", False) or any(v is True for v in args[1:2])
        here, wanted = isinstance(self, CudaTensor), bool(devices) and _is_gpu(devices[0])
        if devices and wanted != here:
            assert not (self.requires_grad and torch.is_grad_enabled())
            if here or not is_async or not getattr(self, "is_pinned_here", False):
                _wait("to(cpu)" if here else "to(cuda), blocking or not from pinned memory")
            self = self.held.clone() if here else CudaTensor(self.detach().clone())
        dtypes = [each for each in given if isinstance(each, torch.dtype)]
        dtypes += [like.dtype for like in given if isinstance(like, Tensor)]
        return real(self, dtypes[0] if dtypes else self.dtype, copy=kwargs.get("copy", False))

    return to


def _pin_memory(self: Tensor) -> Tensor:
    pinned = self.clone()
    pinned.is_pinned_here = True  # type: ignore[attr-defined]
    return pinned


def _attention(real: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def attention(query: Tensor, key: Tensor, *args: Any, is_causal: bool, **kwargs: Any) -> Tensor:
        if is_causal and isinstance(query, CudaTensor):  # the mask made in C++ would be on the CPU
            is_seen = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool).tril()
            kwargs, is_causal = kwargs | {"attn_mask": CudaTensor(is_seen)}, False
        return real(query, key, *args, is_causal=is_causal, **kwargs)

    return attention


def _collective(name: str) -> Callable[..., Any]:
    real = getattr(dist, name)

    def collective(*args: Any, **kwargs: Any) -> Any:
        on_cpu = [t for t in args if isinstance(t, Tensor) and not isinstance(t, CudaTensor)]
        if on_cpu:
            trace = _traces[-1]
            trace.note(trace.faults, f"{name}: NCCL was given a CPU tensor")
        return real(*args, **kwargs)

    return collective


class _Autocast(torch.autocast):
    def __init__(self, device_type: str, *args: Any, **kwargs: Any) -> None:
        super().__init__("cpu", *args, **kwargs)


def _check_recurrent(module: nn.Module, inputs: tuple[Any, ...]) -> None:
    """CuDNN's recurrent networks cast to float16 under autocast, whatever dtype it names."""
    is_recurrent = isinstance(module, nn.RNNBase) and isinstance(inputs[0], CudaTensor)
    if is_recurrent and torch.is_autocast_enabled("cuda"):
        trace = _traces[-1]
        trace.note(trace.faults, f"{type(module).__name__}: float16 under autocast")


@contextmanager
def pretended_gpu() -> Iterator[Trace]:
    """Let torch see one GPU for the length of the block; return what ran on it."""
    trace = Trace()
    _traces.append(trace)
    is_enabled, dtype_of = torch.is_autocast_enabled, torch.get_autocast_dtype
    of_torch = {name: _factory(name) for name in FACTORIES} | {
        "autocast": _Autocast,
        "is_autocast_enabled": lambda *device: is_enabled("cpu"),
        "get_autocast_dtype": lambda device: dtype_of("cpu"),
    }
    groups_of = torch._C._group_tensors_by_device_and_dtype

    def groups(lists: list[list[Tensor]], with_indices: bool = False) -> Any:
        """Torch's C++ sees the tensors' CPU."""
        device = {True: GPU, False: torch.device("cpu")}[type(lists[0][0]) is CudaTensor]
        return {(device, dtype): v for (_, dtype), v in groups_of(lists, with_indices).items()}

    of_tensor = {
        "to": _to(Tensor.to),
        "cpu": lambda self: self.to("cpu"),
        "pin_memory": _pin_memory,
    }
    overwrite = torch.__future__.set_overwrite_module_params_on_conversion
    overwrite(True)  # a parameter on the CPU cannot become a CudaTensor in place
    with ExitStack() as stack:
        stack.callback(overwrite, False)
        attention = "scaled_dot_product_attention"
        for owner, changes in (
            (torch, of_torch),
            (torch.amp, {"autocast": _Autocast}),
            (functional, {attention: _attention(getattr(functional, attention))}),
            (torch.backends.cudnn, {"is_acceptable": lambda tensor: False}),
            (torch._C, {"_group_tensors_by_device_and_dtype": groups}),
            (dist, {name: _collective(name) for name in COLLECTIVES}),
            (Tensor, of_tensor),
            (torch.cuda, OF_CUDA),
            # A torch with CUDA would ask its driver whether a graph is being captured.
            (torch.accelerator, {"current_accelerator": lambda check_available=False: None}),
        ):
            for name, new in changes.items():
                stack.enter_context(patch.object(owner, name, new))
        stack.callback(register_module_forward_pre_hook(_check_recurrent).remove)
        stack.callback(_traces.remove, trace)
        yield trace
