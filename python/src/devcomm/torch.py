"""devcomm's operators for PyTorch: of `torch.library`, so that `torch.compile` and CUDA graphs take them.

    group = devcomm.torch.group(comm)
    total = devcomm.torch.all_reduce(tensor, group)

A group is a number that stands for a communicator, as operators take no objects. Results are new tensors; the operators
whose names end in `_` write to their input.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch

import devcomm
from devcomm import ops

_groups: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


def group(comm: devcomm.Communicator) -> int:
    """The number that operators take for the communicator, which stays alive as long as somebody else keeps it."""
    for number, known in list(_groups.items()):
        if known is comm:
            return number
    number = max(_groups.keys(), default=0) + 1
    _groups[number] = comm
    return number


def _comm(number: int) -> devcomm.Communicator:
    comm = _groups.get(number)
    if comm is None:
        raise devcomm.InvalidArgument(
            f"group {number} is of no communicator that lives; take it of devcomm.torch.group"
        )
    return comm


_library = torch.library.Library("devcomm", "DEF")


def _define(schema: str, run: Any, shape: Any) -> None:
    """`shape` makes the result of tensors without memory."""
    name = schema.split("(")[0]
    _library.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
    _library.impl(name, run, "CompositeExplicitAutograd")
    torch.library.register_fake(f"devcomm::{name}", shape, lib=_library)


def _like(input: torch.Tensor, *_: Any) -> torch.Tensor:
    return torch.empty_like(input, memory_format=torch.contiguous_format)


def _part(input: torch.Tensor, op: str, group: int) -> torch.Tensor:
    return input.new_empty((input.shape[0] // _comm(group).lsa.size, *input.shape[1:]))


def _whole(input: torch.Tensor, group: int) -> torch.Tensor:
    return input.new_empty((input.shape[0] * _comm(group).lsa.size, *input.shape[1:]))


def _in_place(input: torch.Tensor, *_: Any) -> None:
    return None


def _run_all_reduce(input: torch.Tensor, op: str, group: int) -> torch.Tensor:
    return ops.all_reduce(_comm(group), input.contiguous(), op)  # type: ignore[no-any-return]


def _run_all_reduce_(input: torch.Tensor, op: str, group: int) -> None:
    ops.all_reduce(_comm(group), input, op, out=input)


def _run_reduce_scatter(input: torch.Tensor, op: str, group: int) -> torch.Tensor:
    return ops.reduce_scatter(_comm(group), input.contiguous(), op)  # type: ignore[no-any-return]


def _run_all_gather(input: torch.Tensor, group: int) -> torch.Tensor:
    return ops.all_gather(_comm(group), input.contiguous())  # type: ignore[no-any-return]


def _run_broadcast_(input: torch.Tensor, root: int, group: int) -> None:
    ops.broadcast(_comm(group), input, root, out=input)


def _run_all_to_all(input: torch.Tensor, group: int) -> torch.Tensor:
    return ops.all_to_all(_comm(group), input.contiguous())  # type: ignore[no-any-return]


_define("all_reduce(Tensor input, str op, int group) -> Tensor", _run_all_reduce, _like)
_define("all_reduce_(Tensor(a!) input, str op, int group) -> ()", _run_all_reduce_, _in_place)
_define("reduce_scatter(Tensor input, str op, int group) -> Tensor", _run_reduce_scatter, _part)
_define("all_gather(Tensor input, int group) -> Tensor", _run_all_gather, _whole)
_define("broadcast_(Tensor(a!) input, int root, int group) -> ()", _run_broadcast_, _in_place)
_define("all_to_all(Tensor input, int group) -> Tensor", _run_all_to_all, _like)


def all_reduce(input: torch.Tensor, group: int, op: str = "sum") -> torch.Tensor:
    """As `devcomm.ops.all_reduce`."""
    return torch.ops.devcomm.all_reduce(input, op, group)  # type: ignore[no-any-return]


def all_reduce_(input: torch.Tensor, group: int, op: str = "sum") -> torch.Tensor:
    """The same in place."""
    torch.ops.devcomm.all_reduce_(input, op, group)
    return input


def reduce_scatter(input: torch.Tensor, group: int, op: str = "sum") -> torch.Tensor:
    """As `devcomm.ops.reduce_scatter`."""
    return torch.ops.devcomm.reduce_scatter(input, op, group)  # type: ignore[no-any-return]


def all_gather(input: torch.Tensor, group: int) -> torch.Tensor:
    """As `devcomm.ops.all_gather`."""
    return torch.ops.devcomm.all_gather(input, group)  # type: ignore[no-any-return]


def broadcast_(input: torch.Tensor, group: int, root: int = 0) -> torch.Tensor:
    """As `devcomm.ops.broadcast`, in place."""
    torch.ops.devcomm.broadcast_(input, root, group)
    return input


def all_to_all(input: torch.Tensor, group: int) -> torch.Tensor:
    """As `devcomm.ops.all_to_all`."""
    return torch.ops.devcomm.all_to_all(input, group)  # type: ignore[no-any-return]
