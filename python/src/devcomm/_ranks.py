"""How ranks start: all as threads of this process, or one for each process that a launcher has started."""

from __future__ import annotations

import atexit
import contextlib
import threading
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

from devcomm import _native as native

Result = TypeVar("Result")

_open: weakref.WeakSet[Any] = weakref.WeakSet()


class _Failed:
    """The first error of all ranks that does not follow from another's."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.error: BaseException | None = None
        self.rank = -1
        self.follows = False

    def add(self, rank: int, error: BaseException, heard: bool) -> None:
        with self.lock:
            follows = isinstance(error, native.RemoteError) or (
                heard or self.error is not None
                if isinstance(error, native.KernelError)
                else heard and not isinstance(error, native.Error)
            )
            if self.error is None or (self.follows and not follows):
                self.error, self.rank, self.follows = error, rank, follows


def connect(
    group: Any = None,
    *,
    rank: int | None = None,
    size: int | None = None,
    all_gather: Callable[[bytes], list[bytes]] | None = None,
    unique_id: str | None = None,
    limit: float | None = None,
    **options: Any,
) -> Any:
    """A communicator of ranks that are processes.

    Without arguments from what the launcher (torchrun, mpirun, srun) has set in the environment; from a group of
    `torch.distributed` or a communicator of mpi4py; from `rank`, `size` and an all-gather of one's own, which takes this
    rank's bytes and returns those of all; or from `rank`, `size` and the `unique_id` that rank 0 has made by
    `devcomm.create_unique_id`. `options` are those of `Communicator`.
    """
    if group is not None:
        rank, size, all_gather = _members_of(group)
    if all_gather is not None or unique_id is not None:
        if rank is None or size is None:
            raise native.InvalidArgument("connect: an all-gather or a unique id needs rank and size")
        if all_gather is not None:
            ranks = native.all_gather_bootstrap(rank, size, all_gather, limit)
        else:
            ranks = native.tcp_bootstrap(unique_id, rank, size, limit)
    elif rank is not None or size is not None:
        raise native.InvalidArgument("connect: rank and size need an all_gather or a unique_id")
    elif native.launched_by_environment():
        ranks = native.environment_bootstrap(limit)
    else:
        ranks = native.thread_bootstraps(1)[0]
    return make_communicator(ranks, limit=limit, **options)


def _members_of(group: Any) -> tuple[int, int, Callable[[bytes], list[bytes]]]:
    if hasattr(group, "Get_rank"):  # mpi4py
        return group.Get_rank(), group.Get_size(), group.allgather
    try:
        import torch.distributed as dist

        rank, size = dist.get_rank(group), dist.get_world_size(group)
    except (ImportError, ValueError, TypeError, RuntimeError) as error:
        raise native.InvalidArgument(
            f"connect: {type(group).__name__} is neither a group of torch.distributed nor a communicator of mpi4py; give "
            "rank, size and all_gather"
        ) from error

    def all_gather(mine: bytes) -> list[bytes]:
        gathered: list[Any] = [None] * size
        dist.all_gather_object(gathered, mine, group=group)
        return gathered

    return rank, size, all_gather


def make_communicator(ranks: Any, **options: Any) -> Any:
    comm = native.Communicator(ranks, **options)
    _open.add(comm)
    return comm


@atexit.register
def _close_all() -> None:
    """Objects may be alive when the interpreter ends; other ranks are to hear that this one ends in order."""
    for comm in list(_open):
        comm.close()


def run_ranks(
    function: Callable[..., Result],
    ranks: int | None = None,
    *arguments: Any,
    limit: float | None = None,
    **options: Any,
) -> list[Result]:
    """Calls `function(comm, *arguments)` on each rank, and returns what the ranks of this process returned.

    Under a launcher this process is one rank; otherwise it holds all of them, a thread each: `DEVCOMM_RANKS`, or
    `ranks`, or one for each GPU. When the function has returned, waits until the device is idle, and raises what no call has reported. When a
    rank raises, the waits of the others end, and its error is raised here.
    """
    if native.launched_by_environment():
        return [_run_process(function, arguments, limit, options)]
    if ranks is not None and (not isinstance(ranks, int) or ranks < 1):
        raise native.InvalidArgument(f"run_ranks: ranks is a number from 1; it is {ranks!r}")
    count = native.wanted_ranks(ranks or 0) or native.device_count()
    native.provide_devices(count)
    bootstraps = native.thread_bootstraps(count)
    results: list[Any] = [None] * count
    failed = _Failed()
    started, ended = native.OrderCell(), native.OrderCell()
    races = native.race_reports()

    def run(index: int) -> None:
        native.take_over(started)
        comm = None
        try:
            comm = make_communicator(bootstraps[index], limit=limit, **options)
            results[index] = function(comm, *arguments)
            comm._finish()
        except BaseException as error:
            failed.add(index, error, comm is not None and comm._follows_another())
            if comm is not None:
                comm._fail(_text_of(error))
            else:
                bootstraps[index].interrupt(_text_of(error))
        finally:
            if comm is not None:
                comm.close()
            bootstraps[index] = None  # ranks that still wait for this one hear that it has left
            native.hand_over(ended)

    native.hand_over(started)
    threads = [threading.Thread(target=run, args=(i,), name=f"devcomm rank {i}") for i in range(count)]
    for thread in threads:
        thread.start()
    _join(threads, bootstraps)
    native.take_over(ended)
    if failed.error is not None:
        failed.error.add_note(f"raised on rank {failed.rank} of {count}")
        raise failed.error
    if native.race_reports() > races:
        raise native.Error(f"the race detector has reported data races; the latest: {native.last_race()}")
    return results


def _run_process(function: Callable[..., Any], arguments: tuple[Any, ...], limit: float | None, options: Any) -> Any:
    comm = make_communicator(native.environment_bootstrap(limit), limit=limit, **options)
    try:
        result = function(comm, *arguments)
        comm._finish()
    except BaseException as error:
        with contextlib.suppress(native.Error):
            comm._fail(_text_of(error))
        raise
    finally:
        comm.close()
    return result


def _text_of(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _join(threads: list[threading.Thread], bootstraps: list[Any]) -> None:
    """Waits for all, also when Ctrl-C comes meanwhile: it ends the waits of all ranks first."""
    interrupted = None
    for thread in threads:
        while thread.is_alive():
            try:
                thread.join(0.1)
            except KeyboardInterrupt as error:
                interrupted = error
                for each in filter(None, list(bootstraps)):
                    each.interrupt("interrupted (Ctrl-C)")
                for comm in list(_open):
                    comm._interrupt("interrupted (Ctrl-C)")
    if interrupted is not None:
        raise interrupted
