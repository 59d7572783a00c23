"""The backend for GPUs without one: on the stand-in for CUDA's driver of the host library's tests, which loads kernels
and does not run them."""

import os
import pathlib
import subprocess
import sys

import devcomm
import pytest
from devcomm import _nvrtc

SOURCES = pathlib.Path(__file__).parents[2] / "tests/host/stand_in_driver"

BEGIN = r"""
import ctypes
import devcomm
import numpy
from devcomm import ops

driver = ctypes.CDLL("libcuda.so.1")

class Launch(ctypes.Structure):  # stand_in_launch of control.hpp
    _fields_ = [
        ("kernel", ctypes.c_char_p), ("device", ctypes.c_int), ("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3),
        ("cluster", ctypes.c_uint * 3), ("shared_bytes", ctypes.c_uint), ("stream", ctypes.c_void_p),
        ("cooperative", ctypes.c_int), ("dependent", ctypes.c_int), ("loaded", ctypes.c_int), ("arguments", ctypes.POINTER(ctypes.c_void_p)),
    ]

launches = []

@ctypes.CFUNCTYPE(None, ctypes.POINTER(Launch))
def seen(pointer):
    launch = pointer[0]
    name = launch.kernel.decode()
    launches.append((name, launch.device, [*launch.grid], [*launch.block], [*launch.cluster], launch.shared_bytes,
                     launch.stream, launch.cooperative, launch.dependent, launch.loaded))
    if "fill" in name:
        pointer, value, count = (launch.arguments[i] for i in (1, 2, 3))
        to = ctypes.POINTER(ctypes.c_float).from_address(pointer)
        for i in range(ctypes.c_int.from_address(count).value):
            to[i] = ctypes.c_float.from_address(value).value

driver.stand_in_see_launches(seen)
KERNELS = '''
#include <devcomm/devcomm.cuh>
__global__ void fill(devcomm::device_comm comm, float* to, float value, int count) {}
__global__ void wait(devcomm::device_comm comm, devcomm::sym_ptr<float> data) {}
'''
"""

LAUNCHES = r"""
class Stream:
    cuda_stream = 77

def rank(comm):
    kernels = devcomm.compile(KERNELS)
    device_comm = comm.create_device_comm(comm.requirements().lsa_barriers(4))
    comm.prepare(kernels)
    array = comm.empty((4, 8))
    array.set(numpy.arange(32).reshape(4, 8))
    assert (array.get().ravel() == numpy.arange(32)).all()
    kernels.fill((2, 3), (32, 2), Stream, shared_bytes=100_000, cluster=2, dependent=True)(device_comm, array[1:], 2.5, 16)
    comm.synchronize()
    assert (array.get()[1:3] == 2.5).all() and array.get()[3, 0] == 24
    comm.barrier()
    return comm.device

assert sorted(devcomm.run_ranks(rank, 2)) == [0, 1]
assert sorted(launches) == [
    ("_Z4fillN7devcomm11device_commEPffi", device, [2, 3, 1], [32, 2, 1], [2, 1, 1], 100_000, 77, 0, 1, 1)
    for device in (0, 1)
], launches
"""

OPERATORS = r"""
def rank(comm):
    x, weight = comm.empty((4, 64), "bfloat16"), comm.empty(64, "bfloat16")
    assert ops.all_reduce(comm, x, out=x) is x
    ops.all_gather(comm, x, stream=77, max_blocks=3)
    ops.all_reduce_rms_norm(comm, x, comm.empty((4, 64), "bfloat16"), weight, dependent=True)
    ops.send_receive(comm, [(x, comm.rank)], [(comm.empty((4, 64), "bfloat16"), comm.rank)])
    comm.synchronize()
    comm.check()
    comm.barrier()

devcomm.run_ranks(rank, 2)
of_first = [launch for launch in launches if launch[1] == 0]
names = ["all_reduce_one_shot", "all_gather", "all_reduce_rms_norm", "send_receive"]
assert len(of_first) == 4 and all(name in launch[0] for name, launch in zip(names, of_first)), of_first
assert [launch[6] for launch in of_first] == [None, 77, None, None]
assert [launch[8] for launch in of_first] == [0, 0, 1, 0]
assert all(launch[9] for launch in launches)  # a launch that loads would wait for kernels that wait for its rank
"""

ERRORS = r"""
def fails(call, *words):
    try:
        call()
    except devcomm.Error as error:
        assert all(word in str(error) for word in words), error
    else:
        raise AssertionError(words)

def rank(comm):
    kernels = devcomm.compile(KERNELS)
    device_comm, array = comm.create_device_comm(comm.requirements()), comm.empty(16)
    of_host = numpy.zeros(16, "float32")
    on_host = "the array is in memory of the host, which a GPU cannot access"
    fails(lambda: kernels.fill(1, 32)(device_comm, of_host, 1.0, 16), "argument 2 of kernel fill", "float*: " + on_host)
    fails(lambda: ops.all_reduce(comm, of_host), f"all_reduce (rank {comm.rank} of 2): " + on_host)
    fails(lambda: ops.all_reduce(comm, array, out=of_host), on_host)
    fails(lambda: comm.register(of_host), "register (rank", "in memory of the host, which peers cannot reach")
    fails(lambda: kernels.wait(1, 32)(device_comm, array.peer(1 - comm.rank)), "the array is another rank's")
    fails(lambda: kernels.fill(1, 32, shared_bytes=228 << 10)(device_comm, array, 1.0, 16), "cuKernelSetAttribute")
    comm.barrier()
    if comm.rank == 1:
        driver.stand_in_fail(b"cuLaunchKernelEx", 1)
        fails(lambda: kernels.fill(1, 32)(device_comm, array, 1.0, 16), "cuLaunchKernelEx", "NOT_PERMITTED")
    comm.barrier()

devcomm.run_ranks(rank, 2)
"""

END = r"""
class Held(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int) for name in "memory multicast bindings reservations mappings device host registered streams".split()]

import gc
gc.collect()
driver.stand_in_count_held.restype = Held
held = driver.stand_in_count_held()
assert not any(getattr(held, name) for name, _ in Held._fields_), {name: getattr(held, name) for name, _ in Held._fields_}
driver.stand_in_complaints.restype = ctypes.c_char_p
assert driver.stand_in_complaints() == b"", driver.stand_in_complaints()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    if not SOURCES.is_dir():
        pytest.skip("the host library's tests are not here")
    try:
        _nvrtc._library()
        headers = next(path for path in _nvrtc._include_folders() if (pathlib.Path(path) / "cuda.h").exists())
    except (devcomm.NotSupported, StopIteration) as problem:
        pytest.skip(f"needs NVRTC and cuda.h: {problem}")
    made = tmp_path_factory.mktemp("driver")
    files = [SOURCES / f"{name}.cpp" for name in "devices kernels memory multicast plain_memory state".split()]
    command = [os.environ.get("CXX", "c++"), "-std=c++20", "-O1", "-shared", "-fPIC", f"-I{headers}", *files]
    subprocess.run([*command, "-Wl,-soname,libcuda.so.1", "-o", made / "libcuda.so.1"], check=True)
    return made


@pytest.mark.parametrize("program", [LAUNCHES, OPERATORS, ERRORS])
def test_on_the_stand_in(folder, program):
    paths = f"{folder}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + program + END],
        env=os.environ | {"DEVCOMM_BACKEND": "cuda", "LD_LIBRARY_PATH": paths}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0 and not done.stderr, done.stderr
