"""devcomm's operators for PyTorch: of `torch.library`, so that `torch.compile` and CUDA graphs take them; and
`CustomAllreduce`, which has the methods of vLLM's class of that name.

    group = devcomm.torch.group(comm)
    total = devcomm.torch.all_reduce(tensor, group)

A group is a number that stands for a communicator, as operators take no objects. Results are new tensors; the operators
whose names end in `_` write to their input. `all_reduce` and `reduce_scatter` (sum and average), `all_gather` and
`all_to_all` have gradients, those of the sum of all ranks' losses; the others refuse tensors that require one.
"""

from __future__ import annotations

import contextlib
import itertools
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import torch

import devcomm
from devcomm import _native as native
from devcomm import ops

_groups: dict[int, weakref.ref[devcomm.Communicator]] = {}
_numbers = itertools.count(1)  # none stands for another communicator later


def group(comm: devcomm.Communicator) -> int:
    """The number that operators take for the communicator, which stays alive as long as somebody else keeps it."""
    for number, known in list(_groups.items()):
        if known() is comm:
            return number
    number = next(_numbers)
    _groups[number] = weakref.ref(comm)
    return number


def _comm(number: int) -> devcomm.Communicator:
    known = _groups.get(number)
    comm = None if known is None else known()
    if comm is None:
        raise devcomm.InvalidArgument(
            f"group {number} is of no communicator that lives; take it of devcomm.torch.group"
        )
    return comm


_library = torch.library.Library("devcomm", "DEF")
_defined = torch.ops.devcomm


def _define(name: str, own_arguments: str, returns: str, run: Any, shape: Any, gradient: Any = None) -> None:
    """An operator with its own arguments and those that all have; `run` takes all. `shape` makes the result of tensors
    without memory. `gradient` takes the result's gradient and all arguments but the input."""
    schema = f"{name}({own_arguments}, int group, *, int max_blocks=0, bool dependent=False) -> {returns}"
    _library.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
    _library.impl(name, run, "CompositeExplicitAutograd")
    torch.library.register_fake(f"devcomm::{name}", shape, lib=_library)
    if gradient is None:
        return

    def keep(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Any) -> None:
        ctx.others, ctx.options = inputs[1:], keyword_only_inputs

    def backward(ctx: Any, of_result: torch.Tensor) -> Any:
        return (gradient(of_result, *ctx.others, **ctx.options), *(None for _ in ctx.others))

    torch.library.register_autograd(f"devcomm::{name}", backward, setup_context=keep, lib=_library)


def _options(max_blocks: int, dependent: bool) -> dict[str, Any]:
    """Without what is the default, which PyTorch's dispatcher would look at for a microsecond."""
    return {"max_blocks": max_blocks, "dependent": dependent} if max_blocks or dependent else {}


def _is_linear(name: str, op: str) -> None:
    if op not in ("sum", "average"):
        raise devcomm.NotSupported(f"{name} has a gradient with 'sum' and 'average', and none with '{op}'")


def _gradient_of_all_reduce(of_result: torch.Tensor, op: str, group: int, **options: Any) -> Any:
    _is_linear("all_reduce", op)
    return _defined.all_reduce(of_result, op, group, **options)


def _gradient_of_reduce_scatter(of_result: torch.Tensor, op: str, group: int, **options: Any) -> Any:
    _is_linear("reduce_scatter", op)
    whole = _defined.all_gather(of_result, group, **options)
    return whole / _comm(group).lsa.size if op == "average" else whole


def _gradient_of_all_gather(of_result: torch.Tensor, group: int, **options: Any) -> Any:
    return _defined.reduce_scatter(of_result, "sum", group, **options)


def _gradient_of_all_to_all(of_result: torch.Tensor, group: int, **options: Any) -> Any:
    return _defined.all_to_all(of_result, group, **options)


def _like(input: torch.Tensor, *_: Any, **options: Any) -> torch.Tensor:
    return torch.empty_like(input, memory_format=torch.contiguous_format)


def _part(input: torch.Tensor, op: str, group: int, **options: Any) -> torch.Tensor:
    return input.new_empty((input.shape[0] // _comm(group).lsa.size, *input.shape[1:]))


def _whole(input: torch.Tensor, group: int, **options: Any) -> torch.Tensor:
    return input.new_empty((input.shape[0] * _comm(group).lsa.size, *input.shape[1:]))


def _in_place(*_: Any, **options: Any) -> None:
    return None


def _run_all_reduce_(input: torch.Tensor, op: str, group: int, **options: Any) -> None:
    ops.all_reduce(_comm(group), input, op, out=input, **options)


def _run_broadcast_(input: torch.Tensor, root: int, group: int, **options: Any) -> None:
    ops.broadcast(_comm(group), input, root, out=input, **options)


def _run_all_reduce_rms_norm_quantized(
    input: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    out: torch.Tensor,
    scale: torch.Tensor | None,
    scales: torch.Tensor | None,
    eps: float,
    group: int,
    **options: Any,
) -> None:
    ops.all_reduce_rms_norm(
        _comm(group), input.contiguous(), residual, weight.contiguous(), eps, out=out, scale=scale, scales=scales, **options
    )


def _run_send_receive(
    sends: Sequence[torch.Tensor],
    destinations: Sequence[int],
    receives: Sequence[torch.Tensor],
    sources: Sequence[int],
    group: int,
    **options: Any,
) -> None:
    if len(sends) != len(destinations) or len(receives) != len(sources):
        raise devcomm.InvalidArgument(
            f"send_receive: {len(sends)} tensors go to {len(destinations)} ranks, and {len(receives)} come from "
            f"{len(sources)}"
        )
    contiguous = [tensor.contiguous() for tensor in sends]
    ops.send_receive(_comm(group), list(zip(contiguous, destinations)), list(zip(receives, sources)), **options)


_define(
    "all_reduce",
    "Tensor input, str op",
    "Tensor",
    lambda input, op, group, **options: ops.all_reduce(_comm(group), input.contiguous(), op, **options),
    _like,
    _gradient_of_all_reduce,
)
_define("all_reduce_", "Tensor(a!) input, str op", "()", _run_all_reduce_, _in_place)
_define(
    "reduce_scatter",
    "Tensor input, str op",
    "Tensor",
    lambda input, op, group, **options: ops.reduce_scatter(_comm(group), input.contiguous(), op, **options),
    _part,
    _gradient_of_reduce_scatter,
)
_define(
    "all_gather",
    "Tensor input",
    "Tensor",
    lambda input, group, **options: ops.all_gather(_comm(group), input.contiguous(), **options),
    _whole,
    _gradient_of_all_gather,
)
_define("broadcast_", "Tensor(a!) input, int root", "()", _run_broadcast_, _in_place)
_define(
    "all_to_all",
    "Tensor input",
    "Tensor",
    lambda input, group, **options: ops.all_to_all(_comm(group), input.contiguous(), **options),
    _like,
    _gradient_of_all_to_all,
)
_define(
    "all_to_all_v",
    "Tensor input, Tensor counts, Tensor(a!) out, Tensor(b!) counts_out",
    "()",
    lambda input, counts, out, counts_out, group, **options: ops.all_to_all_v(
        _comm(group), input.contiguous(), counts.contiguous(), out=out, counts_out=counts_out, **options
    ),
    _in_place,
)
_define(
    "all_reduce_rms_norm",
    "Tensor input, Tensor(a!) residual, Tensor weight, float eps",
    "Tensor",
    lambda input, residual, weight, eps, group, **options: ops.all_reduce_rms_norm(
        _comm(group), input.contiguous(), residual, weight.contiguous(), eps, **options
    ),
    _like,
)
_define(
    "all_reduce_rms_norm_quantized",
    "Tensor input, Tensor(a!) residual, Tensor weight, Tensor(b!) out, Tensor? scale, "
    "Tensor(c!)? scales, float eps",
    "()",
    _run_all_reduce_rms_norm_quantized,
    _in_place,
)
_define(
    "send_receive",
    "Tensor[] sends, int[] destinations, Tensor(a!)[] receives, int[] sources",
    "()",
    _run_send_receive,
    _in_place,
)


def all_reduce(
    input: torch.Tensor, group: int, op: str = "sum", *, max_blocks: int = 0, dependent: bool = False
) -> torch.Tensor:
    """As `devcomm.ops.all_reduce`."""
    return _defined.all_reduce(input, op, group, **_options(max_blocks, dependent))  # type: ignore[no-any-return]


def all_reduce_(
    input: torch.Tensor, group: int, op: str = "sum", *, max_blocks: int = 0, dependent: bool = False
) -> torch.Tensor:
    """The same in place."""
    _defined.all_reduce_(input, op, group, **_options(max_blocks, dependent))
    return input


def reduce_scatter(
    input: torch.Tensor, group: int, op: str = "sum", *, max_blocks: int = 0, dependent: bool = False
) -> torch.Tensor:
    """As `devcomm.ops.reduce_scatter`."""
    return _defined.reduce_scatter(input, op, group, **_options(max_blocks, dependent))  # type: ignore[no-any-return]


def all_gather(input: torch.Tensor, group: int, *, max_blocks: int = 0, dependent: bool = False) -> torch.Tensor:
    """As `devcomm.ops.all_gather`."""
    return _defined.all_gather(input, group, **_options(max_blocks, dependent))  # type: ignore[no-any-return]


def broadcast_(
    input: torch.Tensor, group: int, root: int = 0, *, max_blocks: int = 0, dependent: bool = False
) -> torch.Tensor:
    """As `devcomm.ops.broadcast`, in place."""
    _defined.broadcast_(input, root, group, **_options(max_blocks, dependent))
    return input


def all_to_all(input: torch.Tensor, group: int, *, max_blocks: int = 0, dependent: bool = False) -> torch.Tensor:
    """As `devcomm.ops.all_to_all`."""
    return _defined.all_to_all(input, group, **_options(max_blocks, dependent))  # type: ignore[no-any-return]


def all_to_all_v(
    input: torch.Tensor,
    counts: torch.Tensor,
    out: torch.Tensor,
    counts_out: torch.Tensor,
    group: int,
    *,
    max_blocks: int = 0,
    dependent: bool = False,
) -> None:
    """As `devcomm.ops.all_to_all_v`."""
    _defined.all_to_all_v(input, counts, out, counts_out, group, **_options(max_blocks, dependent))


def all_reduce_rms_norm(
    input: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    group: int,
    eps: float = 1e-6,
    *,
    max_blocks: int = 0,
    dependent: bool = False,
) -> torch.Tensor:
    """As `devcomm.ops.all_reduce_rms_norm`: adds to `residual`, and returns its norm."""
    return _defined.all_reduce_rms_norm(  # type: ignore[no-any-return]
        input, residual, weight, eps, group, **_options(max_blocks, dependent)
    )


def all_reduce_rms_norm_quantized(
    input: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    out: torch.Tensor,
    group: int,
    eps: float = 1e-6,
    *,
    scale: torch.Tensor | None = None,
    scales: torch.Tensor | None = None,
    max_blocks: int = 0,
    dependent: bool = False,
) -> torch.Tensor:
    """As `devcomm.ops.all_reduce_rms_norm` with an `out` of `torch.float8_e4m3fn` or `torch.float8_e5m2`, which it
    returns: with `scale`, which is read, or `scales`, which are written."""
    _defined.all_reduce_rms_norm_quantized(
        input, residual, weight, out, scale, scales, eps, group, **_options(max_blocks, dependent)
    )
    return out


def send_receive(
    sends: Sequence[tuple[torch.Tensor, int]],
    receives: Sequence[tuple[torch.Tensor, int]],
    group: int,
    *,
    max_blocks: int = 0,
    dependent: bool = False,
) -> None:
    """As `devcomm.ops.send_receive`."""
    _defined.send_receive(
        [tensor for tensor, _ in sends], [peer for _, peer in sends],
        [tensor for tensor, _ in receives], [peer for _, peer in receives], group,
        **_options(max_blocks, dependent),
    )  # fmt: skip


_allocators: list[Any] = []


def pool() -> torch.cuda.MemPool:
    """Memory for `torch.cuda.use_mem_pool`: tensors in it become windows by `Communicator.register` without a copy,
    whatever PyTorch's own allocator is, and on hosts that share NVLink, too."""
    if native.backend != "cuda":
        raise devcomm.NotSupported("pool: simulated GPUs have no CUDA memory; take Communicator.empty")
    allocator = torch.cuda.memory.CUDAPluggableAllocator(native.library, "devcomm_pool_allocate", "devcomm_pool_free")
    _allocators.append(allocator)  # a pool does not keep it
    return torch.cuda.MemPool(allocator.allocator())


class CustomAllreduce:
    """An all-reduce with the methods that vLLM's model runner calls, for engines that have that class.

    Kernels take inputs wherever they lie, so nothing is registered: `capture` and `register_graph_buffers` are there for
    their callers alone, and what is captured into a graph reads the addresses that the graph has.
    """

    def __init__(self, group: Any, device: int | str | torch.device = -1, max_size: int = 8 << 20) -> None:
        """`group` is of `torch.distributed`, or a communicator, which stays the caller's. Larger tensors than `max_size`
        bytes are left to others."""
        self._owned = not isinstance(group, devcomm.Communicator)
        index = device if isinstance(device, int) else torch.device(device).index
        self._comm = devcomm.connect(group, device=-1 if index is None else index) if self._owned else group
        self.rank, self.world_size, self.max_size = self._comm.rank, self._comm.size, max_size
        # As of vLLM's: a group of one rank needs none, and ranks out of reach cannot have one.
        self.disabled = self.world_size == 1 or self._comm.lsa.size != self.world_size

    def should_custom_ar(self, input: torch.Tensor) -> bool:
        """Whether `custom_all_reduce` takes the tensor; alike on all ranks for tensors of the same shape and type."""
        return (
            not self.disabled
            and input.dtype in (torch.float32, torch.float16, torch.bfloat16)
            and input.is_contiguous()
            and 0 < input.numel() * input.element_size() <= self.max_size
        )

    def custom_all_reduce(self, input: torch.Tensor) -> torch.Tensor | None:
        """The sum, as a new tensor; `None` where the tensor is not for this class."""
        if not self.should_custom_ar(input):
            return None
        return self.all_reduce(input)

    def all_reduce(
        self, input: torch.Tensor, *, out: torch.Tensor | None = None, registered: bool = False
    ) -> torch.Tensor:
        """The sum. `registered` changes nothing."""
        return ops.all_reduce(self._comm, input, out=out)  # type: ignore[no-any-return]

    @contextlib.contextmanager
    def capture(self) -> Iterator[None]:
        """Around the capture of graphs."""
        yield

    def register_buffer(self, input: torch.Tensor) -> None:
        """Does nothing."""

    def register_graph_buffers(self) -> None:
        """Does nothing."""

    def close(self) -> None:
        """Ends the communicator, if this made it."""
        self.disabled = True
        if self._owned:
            self._comm.close()
