"""Collectives as operators on arrays: of numpy on simulated GPUs, of torch and CuPy on GPUs, or symmetric arrays.

    total = ops.all_reduce(comm, tensor)
    ops.all_gather(comm, shard, out=whole)

All ranks of the LSA team call them in the same order, with the same shapes and types; a communicator's first operator
makes what all share, so all its ranks call it. Results are the same bits on all ranks and in every run. An operator is
compiled at its first use, or before by `precompile`. On GPUs it is enqueued to a stream; on simulated ones it is over
when the call returns, if the arrays are of the host.
"""

from __future__ import annotations

import concurrent.futures
import ctypes
import functools
import math
import os
import pathlib
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import devcomm
from devcomm import _native as native

SOURCE = pathlib.Path(__file__).with_name("kernels.cu")

IN_CPP = {
    "float32": "float",
    "float16": "__half",
    "bfloat16": "__nv_bfloat16",
    "float64": "double",
    "int8": "signed char",
    "int16": "short",
    "int32": "int",
    "int64": "long",
    "uint8": "unsigned char",
    "uint16": "unsigned short",
    "uint32": "unsigned int",
    "uint64": "unsigned long",
    "float8_e4m3fn": "__nv_fp8_e4m3",
    "float8_e5m2": "__nv_fp8_e5m2",
}
OPERATORS = {
    "sum": "sum",
    "product": "product",
    "min": "minimum",
    "max": "maximum",
    "average": "average",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
}
OF_INTEGERS = ("and", "or", "xor")
OF_FLOATS = ("average",)
FLOAT8 = ("float8_e4m3fn", "float8_e5m2")
OF_LAMPORT = ("float32", "float16", "bfloat16")  # elements that Lamport packets carry
MOVED_AS = {1: "unsigned char", 2: "unsigned short", 4: "unsigned int", 8: "unsigned long"}

ON_GPU = native.backend == "cuda"
MAX_BLOCKS = 132
PACKETS = 512  # of each mailbox, one for a block
LL128_BYTES = 32 * 1024  # from here on LL128 beats LL, where the links keep its lines whole
CHUNK_BYTES = 32 << 20
MAX_ROW_BYTES = 180 << 10  # of a norm's rows
MAX_MESSAGES = 64  # of a group of sends and receives, which kernels take by value
SEND_RECEIVE = f"send_receive<{MAX_MESSAGES}>"
STRIPES = 32 if ON_GPU else 4  # blocks that move them


# Kernel, blocks, threads, and the kernel's first arguments.
_Choice = tuple[Any, int, int, tuple[Any, ...]]


class _Context:
    """What the operators have of a communicator. Making it is collective."""

    def __init__(self, comm: devcomm.Communicator) -> None:
        needs = comm.requirements().lsa_barriers(2 * MAX_BLOCKS)
        self.mailboxes = {"ll": needs.add_mailboxes("ll", MAX_BLOCKS, PACKETS)}
        self.mailboxes["lamport"] = needs.add_mailboxes("lamport", MAX_BLOCKS, PACKETS)
        if comm.properties["ll128"].available:
            self.mailboxes["ll128"] = needs.add_mailboxes("ll128", MAX_BLOCKS, PACKETS)
        self.chunk_bytes = CHUNK_BYTES if ON_GPU else CHUNK_BYTES >> 10
        self.inputs = needs.add_buffer(self.chunk_bytes, "uint8")
        self.results = needs.add_buffer(self.chunk_bytes, "uint8")
        self.connections = needs.add_connections(STRIPES)
        self.ranks = comm.lsa.size
        self.device_comm = comm.create_device_comm(needs)
        self.choices: dict[tuple[str, int, str, str, int, type], _Choice] = {}


def _context_of(comm: devcomm.Communicator) -> _Context:
    found = getattr(comm, "_operators", None)
    if found is None:
        found = _Context(comm)
        setattr(comm, "_operators", found)
    return found  # type: ignore[no-any-return]


@functools.cache
def _compiled(name: str) -> Any:
    return devcomm.compile(SOURCE, kernels=[f"devcomm::ops::{name}"])[f"devcomm::ops::{name}"]


_loaded: dict[tuple[str, int], Any] = {}
_loading = threading.Lock()


def _kernel(comm: devcomm.Communicator, name: str) -> Any:
    """Ranks may be threads that share a GPU. The first of them loads the kernel before any launches it: a load waits
    for running kernels, and those wait for ranks that have not launched theirs."""
    found = _loaded.get((name, comm.device))
    if found is None:
        found = _compiled(name)
        with _loading:
            found.load(comm.device)
            _loaded[name, comm.device] = found
    return found


def _session(protocol: str) -> str:
    return f"devcomm::lsa::{protocol}_session<devcomm::block>"


class _Call:
    """An operator's input, with its facts, and how it is launched."""

    __slots__ = ("comm", "context", "name", "source", "facts", "on_host", "dependent", "stream")

    def __init__(self, comm: devcomm.Communicator, name: str, source: Any, dependent: bool, stream: Any) -> None:
        if not isinstance(comm, native.Communicator):
            raise native.InvalidArgument(f"{name}: the first argument is a Communicator; it is a {type(comm).__name__}")
        self.comm = comm
        self.name = name
        self.source = source
        self.facts = self.facts_of(source)
        self.on_host = self.facts.on_host
        self.dependent = dependent
        self.stream = _torch_stream(source, comm) if stream is None else stream
        self.context = _context_of(comm)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.facts.shape  # type: ignore[no-any-return]

    @property
    def dtype(self) -> str:
        return self.facts.dtype  # type: ignore[no-any-return]

    @property
    def count(self) -> int:
        return self.facts.elements  # type: ignore[no-any-return]

    def facts_of(self, array: Any) -> Any:
        facts = native.array_facts(array, self.name)
        if ON_GPU and facts.on_host:
            raise self.refuse(
                "the array is in memory of the host, which a GPU cannot access in general; give an array of its device"
            )
        return facts

    def refuse(self, why: str) -> native.InvalidArgument:
        return native.InvalidArgument(f"{self.name} (rank {self.comm.rank} of {self.comm.size}): {why}")

    def result(
        self,
        out: Any,
        shape: tuple[int, ...] | None = None,
        allowed: str = "",
        allowed_offset: int = 0,
        also: tuple[str, ...] = (),
    ) -> tuple[Any, Any]:
        """`out` where it fits, else a new array of the input's library, and its facts. It has the input's shape where
        none is given, and the input's type or one of `also`. With `allowed`, words for the error's text, it may overlap
        the input if it begins `allowed_offset` bytes behind the input's begin."""
        if out is None:
            out = _new_array(self, self.shape if shape is None else shape)
            return out, self.facts_of(out)
        if out is self.source and allowed and shape is None:
            self.check_written("out", self.facts)
            return out, self.facts
        facts = self.facts_of(out)
        if shape is not None or not facts.is_like(self.facts):
            shape = self.shape if shape is None else shape
            if facts.shape != shape or (facts.dtype != self.dtype and facts.dtype not in also):
                raise self.refuse(
                    f"the result has shape {shape} and type {self.dtype}; out has {facts.shape} and {facts.dtype}"
                )
        if not allowed or facts.data - self.facts.data != allowed_offset:
            self.check_apart("out", facts, allowed)
        self.check_written("out", facts)
        return out, facts

    def choice(self, op: str, max_blocks: int, choose: Callable[[_Call, str, int], _Choice]) -> _Choice:
        """What `choose` returns, which is kept for calls with the same arguments: it takes longer than a launch."""
        key = (self.name, self.facts.elements, self.facts.dtype, op, max_blocks, type(max_blocks))  # 2.0 is refused
        found = self.context.choices.get(key)
        if found is None:
            found = self.context.choices[key] = choose(self, op, max_blocks)
        return found

    def check_written(self, name: str, facts: Any) -> None:
        if facts.read_only:
            raise self.refuse(f"{name} is read-only")

    def check_apart(
        self, name: str, facts: Any, allowed: str = "", other: str = "the input", of_other: Any = None
    ) -> None:
        if facts.overlaps(of_other or self.facts):
            raise self.refuse(f"{name} overlaps {other}; give it other memory{allowed}")

    def number(self, name: str, value: Any, lowest: int, highest: int) -> int:
        if isinstance(value, bool) or not hasattr(value, "__index__") or not lowest <= int(value) <= highest:
            raise self.refuse(f"{name} is a number from {lowest} to {highest}; it is {value!r}")
        return int(value)

    def launch(self, kernel: Any, blocks: int, threads: int, *arguments: Any, shared_bytes: int = 0) -> None:
        launch = kernel(blocks, threads, self.stream, shared_bytes=shared_bytes, dependent=self.dependent)
        launch(self.context.device_comm, *arguments)
        if self.on_host:
            self.comm.synchronize()
            self.context.device_comm.check()


def _torch_stream(source: Any, comm: devcomm.Communicator) -> Any:
    """PyTorch's current stream for its tensors, as a number; else none."""
    if not ON_GPU or not type(source).__module__.startswith("torch"):
        return None
    # As what Triton and Inductor launch does: an object of torch.cuda.Stream would cost as much as the launch.
    return sys.modules["torch"]._C._cuda_getCurrentRawStream(comm.device)


def _new_array(call: _Call, shape: tuple[int, ...]) -> Any:
    module = type(call.source).__module__.split(".")[0]
    if module == "torch":
        return call.source.new_empty(shape)
    if isinstance(call.source, native.SymmetricArray):
        return call.comm.empty(shape, call.dtype)
    if module in ("numpy", "ml_dtypes"):
        import numpy

        return numpy.empty(shape, call.source.dtype)
    if module == "cupy":
        import cupy

        return cupy.empty(shape, call.source.dtype)
    raise call.refuse(f"arrays of {module} cannot be made here; give out=")


def _operator(call: _Call, op: str) -> tuple[str, str]:
    """Of a reduction: the element type and the operator in C++."""
    if op not in OPERATORS:
        raise call.refuse(f"op is one of {', '.join(OPERATORS)}; it is {op!r}")
    if call.dtype not in IN_CPP:
        raise call.refuse(f"elements of {call.dtype} cannot be reduced; view them as another type")
    is_float = "float" in call.dtype
    if (op in OF_INTEGERS and is_float) or (op in OF_FLOATS and not is_float):
        raise call.refuse(f"op '{op}' is not defined for {call.dtype}")
    return IN_CPP[call.dtype], f"devcomm::{OPERATORS[op]}"


def _shape_of_launch(call: _Call, bytes_of_rank: int, max_blocks: int) -> tuple[str, int, int]:
    """Protocol, blocks and threads of what moves by packets; alike on all ranks."""
    protocol = "ll128" if "ll128" in call.context.mailboxes and bytes_of_rank >= LL128_BYTES else "ll"
    packs = (bytes_of_rank + 15) // 16
    threads = 512 if packs >= 4096 else 256 if packs >= 512 else 64
    if not ON_GPU:
        threads = min(threads, 64)
    blocks = max(1, min((packs + threads - 1) // threads, _blocks(call, max_blocks), MAX_BLOCKS))
    return protocol, blocks, threads


def _blocks(call: _Call, max_blocks: int) -> int:
    """The largest number of blocks that the caller allows."""
    return call.number("max_blocks", max_blocks, 0, 0x7FFFFFFF) or MAX_BLOCKS


def all_reduce(
    comm: devcomm.Communicator,
    input: Any,
    op: str = "sum",
    *,
    out: Any = None,
    max_blocks: int = 0,
    dependent: bool = False,
    stream: Any = None,
) -> Any:
    """`op` over the ranks' arrays, on all ranks. `out` may be the input. Accumulates in the order of the ranks, in
    float32 where the type is narrower."""
    call = _Call(comm, "all_reduce", input, dependent, stream)
    result, of_result = call.result(out, allowed=", or the input itself")
    kernel, blocks, threads, resources = call.choice(op, max_blocks, _choose_all_reduce)
    count = call.count
    if count != 0:
        call.launch(kernel, blocks, threads, *resources, call.facts, of_result, count)
    return result


def _choose_all_reduce(call: _Call, op: str, max_blocks: int) -> _Choice:
    """No kernel for arrays without elements."""
    kind, operator = _operator(call, op)
    blocks = min(_blocks(call, max_blocks), MAX_BLOCKS)
    if call.count == 0:
        return None, 0, 0, ()
    context = call.context
    plan = native.plan_all_reduce(
        call.count * native.element_bytes(call.dtype), context.ranks, blocks,
        call.dtype in OF_LAMPORT, "ll128" in context.mailboxes,
    )  # fmt: skip
    threads = plan.threads if ON_GPU else min(plan.threads, 64)
    if plan.algorithm == "two_shot_chunked":
        groups = 2 if plan.blocks <= 32 and threads >= 128 else 1
        packs = context.chunk_bytes // (2 * 16 * plan.blocks * groups * context.ranks)
        kernel = _kernel(call.comm, f"all_reduce_two_shot_chunked<{kind}, {operator}>")
        return kernel, plan.blocks, threads, (context.inputs, context.results, packs, groups)
    kernel = _kernel(call.comm, f"all_reduce_{plan.algorithm}<{kind}, {operator}, {_session(plan.protocol)}>")
    return kernel, plan.blocks, threads, (context.mailboxes[plan.protocol],)


def reduce_scatter(
    comm: devcomm.Communicator,
    input: Any,
    op: str = "sum",
    *,
    out: Any = None,
    max_blocks: int = 0,
    dependent: bool = False,
    stream: Any = None,
) -> Any:
    """`op` over the ranks' arrays, of which each rank gets its part along the first axis, which the ranks divide
    evenly."""
    call = _Call(comm, "reduce_scatter", input, dependent, stream)
    shape = _part(call)
    part_bytes = call.facts.bytes // call.context.ranks
    result, of_result = call.result(out, shape, ", or this rank's part of the input", comm.lsa.rank * part_bytes)

    def kernel() -> str:
        kind, operator = _operator(call, op)
        return f"reduce_scatter<{kind}, {operator}, "

    _packets(call, kernel, max_blocks, of_result, call.count // call.context.ranks, op=op)
    return result


def all_gather(
    comm: devcomm.Communicator,
    input: Any,
    *,
    out: Any = None,
    max_blocks: int = 0,
    dependent: bool = False,
    stream: Any = None,
) -> Any:
    """The arrays of all ranks, one behind the other along the first axis, on all ranks."""
    call = _Call(comm, "all_gather", input, dependent, stream)
    if not call.shape:
        raise call.refuse("an array without axes cannot be gathered; reshape it to (1,)")
    shape = (call.shape[0] * call.context.ranks, *call.shape[1:])
    result, of_result = call.result(out, shape, ", or of it this rank's part as input", -comm.lsa.rank * call.facts.bytes)
    _packets(call, lambda: f"all_gather<{_moved(call)}, ", max_blocks, of_result, call.count)
    return result


def broadcast(
    comm: devcomm.Communicator,
    input: Any,
    root: int = 0,
    *,
    out: Any = None,
    max_blocks: int = 0,
    dependent: bool = False,
    stream: Any = None,
) -> Any:
    """The array of member `root` of the LSA team, on all ranks. `out` may be the input."""
    call = _Call(comm, "broadcast", input, dependent, stream)
    root = call.number("root, a member of the LSA team,", root, 0, call.context.ranks - 1)
    result, of_result = call.result(out, allowed=", or the input itself")
    _packets(call, lambda: f"broadcast<{_moved(call)}, ", max_blocks, of_result, call.count, root)
    return result


def all_to_all(
    comm: devcomm.Communicator,
    input: Any,
    *,
    out: Any = None,
    max_blocks: int = 0,
    dependent: bool = False,
    stream: Any = None,
) -> Any:
    """Part `r` of the array along the first axis goes to rank `r`, and the parts that come lie in the ranks' order. The
    ranks divide the axis evenly. `out` is other memory than the input."""
    call = _Call(comm, "all_to_all", input, dependent, stream)
    _part(call)
    result, of_result = call.result(out)
    _packets(call, lambda: f"all_to_all<{_moved(call)}, ", max_blocks, of_result, call.count // call.context.ranks)
    return result


def all_to_all_v(
    comm: devcomm.Communicator,
    input: Any,
    counts: Any,
    *,
    out: Any,
    counts_out: Any,
    max_blocks: int = 0,
    dependent: bool = False,
    stream: Any = None,
) -> None:
    """`counts[r]` rows of the array go to rank `r`, those for rank 0 first. The rows that come lie in `out`, in the ranks'
    order, and `counts_out[r]` says how many came from `r`.

    Both counts are arrays of 64-bit integers, on the device where the others are: the host never looks at them on GPUs.
    Rows past the end of `out` are left out; compare `counts_out` with its length. On arrays of the host that is an error.
    """
    call = _Call(comm, "all_to_all_v", input, dependent, stream)
    ranks = call.context.ranks
    row = math.prod(call.shape[1:])
    facts = call.facts_of(out)
    if (
        not call.shape
        or facts.shape[1:] != call.shape[1:]
        or len(facts.shape) != len(call.shape)
        or facts.dtype != call.dtype
    ):
        raise call.refuse(
            f"rows of the input are {call.shape[1:]} of {call.dtype}, and those of out {facts.shape[1:]} of {facts.dtype}"
        )
    call.check_apart("out", facts)
    call.check_written("out", facts)
    of_counts, of_counts_out = (call.facts_of(each) for each in (counts, counts_out))
    for name, each in (("counts", of_counts), ("counts_out", of_counts_out)):
        if each.shape != (ranks,) or each.dtype not in ("int64", "uint64"):
            raise call.refuse(
                f"{name} is an array of {ranks} 64-bit integers; it has shape {each.shape} and type {each.dtype}"
            )
    call.check_written("counts_out", of_counts_out)
    call.check_apart("counts_out", of_counts_out, other="counts", of_other=of_counts)
    if row == 0:
        raise call.refuse("rows without elements cannot be counted")
    if call.on_host:
        import numpy

        wanted = numpy.asarray(counts)
        if (wanted < 0).any() or wanted.sum() > call.shape[0]:
            raise call.refuse(f"counts are from 0 on, and {call.shape[0]} in all at most; they are {wanted.tolist()}")
    # Ranks have inputs of different lengths, and launch the same grid.
    blocks = min(_blocks(call, max_blocks or 16), MAX_BLOCKS)
    threads = 512 if ON_GPU else 64
    call.launch(
        _kernel(comm, f"all_to_all_v<{_moved(call)}, {_session('ll')}>"), blocks, threads, call.context.mailboxes["ll"],
        call.facts, call.shape[0], of_counts, facts, of_counts_out, row, facts.shape[0], shared_bytes=8 * (3 * ranks + 1),
    )  # fmt: skip
    if call.on_host:
        total = int(numpy.asarray(counts_out).sum())
        if total > facts.shape[0]:
            raise call.refuse(f"{total} rows came, and out has room for {facts.shape[0]}")


def all_reduce_rms_norm(
    comm: devcomm.Communicator,
    input: Any,
    residual: Any,
    weight: Any,
    eps: float = 1e-6,
    *,
    out: Any = None,
    scale: Any = None,
    scales: Any = None,
    max_blocks: int = 0,
    dependent: bool = False,
    stream: Any = None,
) -> Any:
    """A transformer's layer in one kernel: adds the sum of the ranks' inputs to `residual`, in place, and returns
    `residual / sqrt(mean(residual ** 2) + eps) * weight`, row by row along the last axis. Each row has the same bits
    whatever the number of rows.

    With `out` of `float8_e4m3fn` or `float8_e5m2` the rows are quantized. `scale`, one float32 in an array, is given:
    `out = value / scale`. Or `scales`, of float32 and shape `(..., hidden // 128)`, gets the scale of each row and group of
    128 elements: the group's largest magnitude over the type's largest number."""
    call = _Call(comm, "all_reduce_rms_norm", input, dependent, stream)
    dtype, shape = call.dtype, call.shape
    if dtype not in OF_LAMPORT:
        raise call.refuse(f"elements are float32, float16 or bfloat16; they are {dtype}")
    hidden = shape[-1] if shape else 0
    size = 4 if dtype == "float32" else 2
    if hidden == 0 or hidden * size % 16 != 0:
        raise call.refuse(f"rows fill whole 16 bytes; these have {hidden} elements of {size}")
    if hidden * size > MAX_ROW_BYTES:
        raise call.refuse(
            f"rows have at most {MAX_ROW_BYTES >> 10} KiB, as a block holds one in shared memory; these have {hidden * size} bytes"
        )
    of_residual, of_weight = (call.facts_of(each) for each in (residual, weight))
    for name, each, wanted in (("residual", of_residual, shape), ("weight", of_weight, (hidden,))):
        if each.shape != wanted or each.dtype != dtype:
            raise call.refuse(f"{name} has shape {wanted} and type {dtype}; this one has {each.shape} and {each.dtype}")
        call.check_apart(name, each)
    call.check_written("residual", of_residual)
    result, of_result = call.result(out, allowed=", or the input itself", also=FLOAT8)
    call.check_apart("out", of_result, other="residual", of_other=of_residual)
    rows_as = ""
    if of_result.dtype in FLOAT8:
        rows_as = _quantized(call, of_result, hidden, scale, scales)
    elif scale is not None or scales is not None:
        raise call.refuse(f"scale and scales are for an out of {' or '.join(FLOAT8)}")
    rows = call.count // hidden
    blocks = min(rows, _blocks(call, max_blocks), MAX_BLOCKS)
    if rows == 0:
        return result
    threads = 256 if ON_GPU else 64
    call.launch(
        _kernel(comm, _name_of_norm(dtype, rows_as)), blocks, threads, call.context.mailboxes["lamport"],
        call.facts, of_residual, of_weight, of_result, rows, hidden, eps, scales if scale is None else scale,
        shared_bytes=hidden * size * 5 // 4,
    )  # fmt: skip
    return result


@functools.cache
def _name_of_norm(dtype: str, rows_as: str) -> str:
    return f"all_reduce_rms_norm<{IN_CPP[dtype]}, {_session('lamport')}{rows_as}>"


def _quantized(call: _Call, of_out: Any, hidden: int, scale: Any, scales: Any) -> str:
    """The kernel's argument that says how it writes rows of 8-bit numbers."""
    kind = IN_CPP[of_out.dtype]
    if (scale is None) == (scales is None):
        raise call.refuse(f"an out of {of_out.dtype} needs either scale, which is read, or scales, which are written")
    if scales is None:
        given = call.facts_of(scale)
        if given.dtype != "float32" or math.prod(given.shape) != 1:
            raise call.refuse(f"scale is one float32; this one has shape {given.shape} and type {given.dtype}")
        return f", devcomm::ops::rows_with_scale<{kind}>"
    if hidden % 128 != 0:
        raise call.refuse(f"scales are of groups of 128 elements; rows have {hidden}")
    wanted, given = (*call.shape[:-1], hidden // 128), call.facts_of(scales)
    if given.dtype != "float32" or given.shape != wanted:
        raise call.refuse(f"scales have shape {wanted} and type float32; these have {given.shape} and {given.dtype}")
    call.check_written("scales", given)
    call.check_apart("scales", given)
    return f", devcomm::ops::rows_with_scales<{kind}>"


class _Message(ctypes.Structure):
    """`channel::message`."""

    _fields_ = [
        ("data", ctypes.c_uint64),
        ("bytes", ctypes.c_uint64),
        ("offset", ctypes.c_uint64),
        ("window", ctypes.c_uint32),
        ("peer", ctypes.c_int32),
        ("receives", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
    ]


class _MessageGroup(ctypes.Structure):
    """`message_group` in kernels.cu."""

    _fields_ = [("messages", _Message * MAX_MESSAGES), ("count", ctypes.c_uint64)]


def send_receive(
    comm: devcomm.Communicator,
    sends: Sequence[tuple[Any, int]] = (),
    receives: Sequence[tuple[Any, int]] = (),
    *,
    max_blocks: int = 0,
    dependent: bool = False,
    stream: Any = None,
) -> None:
    """All that this rank sends and receives, at once: `(array, peer)` each, where a peer is a member of the LSA team, and
    may be the rank itself. The messages from one rank to another match in the order in which both list them, and have
    the same number of bytes. All callers pass the same `max_blocks`. A rank without messages need not call it, unless it
    is the communicator's first operator.

    A send ends when its peer receives: ranks that exchange messages put sends and receives into one call. The memory that
    is received into overlaps no other array of the call.
    """
    try:
        listed = [(array, peer, False) for array, peer in sends] + [(array, peer, True) for array, peer in receives]
    except (TypeError, ValueError):
        raise native.InvalidArgument("send_receive: sends and receives are lists of pairs, (array, peer)") from None
    if not listed:
        _context_of(comm)
        return
    call = _Call(comm, "send_receive", listed[0][0], dependent, stream)
    if len(listed) > MAX_MESSAGES:
        raise call.refuse(f"a call has {MAX_MESSAGES} messages at most; this one has {len(listed)}")
    group = _MessageGroup(count=len(listed))
    places = []
    for message, (array, peer, receives_it) in zip(group.messages, listed):
        facts = call.facts_of(array)
        if receives_it:
            call.check_written("an array that is received into", facts)
        message.data = comm.device_pointer(array)
        message.bytes = facts.bytes
        message.peer = call.number("a peer, a member of the LSA team,", peer, 0, call.context.ranks - 1)
        message.receives = receives_it
        if facts.bytes != 0:
            places.append((facts.data, facts.data + facts.bytes, receives_it))
        call.on_host |= facts.on_host
    end_of_any = end_of_received = 0
    for begin, end, receives_it in sorted(places):
        if begin < end_of_received or (receives_it and begin < end_of_any):
            raise call.refuse("an array that is received into overlaps another array of the call; give it other memory")
        end_of_any = max(end_of_any, end)
        if receives_it:
            end_of_received = max(end_of_received, end)
    blocks = min(_blocks(call, max_blocks), STRIPES)
    threads = 512 if ON_GPU else 64
    call.launch(_kernel(comm, SEND_RECEIVE), blocks, threads, call.context.connections, group)


def _part(call: _Call) -> tuple[int, ...]:
    """The shape of a rank's part."""
    if not call.shape or call.shape[0] % call.context.ranks != 0:
        raise call.refuse(
            f"{call.context.ranks} ranks do not divide the first axis of {call.shape}; pad it to a multiple"
        )
    return (call.shape[0] // call.context.ranks, *call.shape[1:])


def _moved(call: _Call) -> str:
    """What elements are moved as: their bits alone count."""
    return MOVED_AS[native.element_bytes(call.dtype)]


def _packets(
    call: _Call, kernel: Callable[[], str], max_blocks: int, of_result: Any, count: int, *further: Any, op: str = ""
) -> None:
    """Launches what moves `count` elements of a rank by packets; `kernel` is its name up to the session."""

    def choose(call: _Call, op: str, max_blocks: int) -> _Choice:
        protocol, blocks, threads = _shape_of_launch(call, count * native.element_bytes(call.dtype), max_blocks)
        name = f"{kernel()}{_session(protocol)}>"
        found = None if count == 0 else _kernel(call.comm, name)
        return found, blocks, threads, (call.context.mailboxes[protocol],)

    found, blocks, threads, resources = call.choice(op, max_blocks, choose)
    if count != 0:
        call.launch(found, blocks, threads, *resources, call.facts, of_result, count, *further)


def precompile(dtypes: Sequence[str] = ("float32", "bfloat16", "float16"), operators: Sequence[str] = ("sum",)) -> None:
    """Compiles what the operators may launch for these types, so that no first call has to. With an 8-bit type among
    them, also the norms that write rows of it."""
    sessions = ["ll", "lamport", "ll128"]
    names = []
    known = [native.type_name(dtype) for dtype in dtypes]
    for dtype in known:
        kind = IN_CPP[dtype]
        for operator in (f"devcomm::{OPERATORS[each]}" for each in operators):
            names.append(f"all_reduce_two_shot_chunked<{kind}, {operator}>")
            for protocol in sessions:
                if protocol == "lamport" and dtype not in OF_LAMPORT:
                    continue
                names += [
                    f"all_reduce_{shots}<{kind}, {operator}, {_session(protocol)}>"
                    for shots in ("one_shot", "two_shot")
                ]
                if protocol != "lamport":
                    names.append(f"reduce_scatter<{kind}, {operator}, {_session(protocol)}>")
    for moved in MOVED_AS.values():
        names += [
            f"{name}<{moved}, {_session(p)}>"
            for name in ("all_gather", "broadcast", "all_to_all")
            for p in ("ll", "ll128")
        ]
        names.append(f"all_to_all_v<{moved}, {_session('ll')}>")
    names.append(SEND_RECEIVE)
    rows_as = [""]
    for kind in (IN_CPP[dtype] for dtype in known if dtype in FLOAT8):
        rows_as += [f", devcomm::ops::rows_with_scale<{kind}>", f", devcomm::ops::rows_with_scales<{kind}>"]
    names += [_name_of_norm(dtype, rows) for dtype in known if dtype in OF_LAMPORT for rows in rows_as]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(_compiled, names))
