"""Communication between GPUs from Python: symmetric memory as arrays, a person's own CUDA kernels with devcomm's device
API inside, and all of it on simulated GPUs where there is none.

    import devcomm, numpy

    kernels = devcomm.compile("all_reduce.cu")

    def rank(comm):
        needs = comm.requirements().lsa_barriers(4)
        device_comm = comm.create_device_comm(needs)
        data = comm.empty((1024,), "float32")
        kernels.all_reduce(grid=4, block=128)(device_comm, data, data.size)
        comm.synchronize()
        comm.check()

    devcomm.run_ranks(rank, 4)
"""

from devcomm._compile import CompileError, Module, compile, include_path
from devcomm._native import (
    Communicator,
    DeviceCommunicator,
    DeviceError,
    Error,
    Handle,
    InvalidArgument,
    Kernel,
    KernelError,
    NotSupported,
    RemoteError,
    Requirements,
    SymmetricArray,
    Team,
    TimedOut,
    backend,
    create_unique_id,
)
from devcomm._ranks import connect, run_ranks

__version__ = "0.1.0"
__all__ = [
    "Communicator",
    "CompileError",
    "DeviceCommunicator",
    "DeviceError",
    "Error",
    "Handle",
    "InvalidArgument",
    "Kernel",
    "KernelError",
    "Module",
    "NotSupported",
    "RemoteError",
    "Requirements",
    "SymmetricArray",
    "Team",
    "TimedOut",
    "backend",
    "compile",
    "connect",
    "create_unique_id",
    "include_path",
    "run_ranks",
]

for _class in (DeviceError, Error, InvalidArgument, KernelError, NotSupported, RemoteError, TimedOut):
    _class.__module__ = "devcomm"  # which messages name
