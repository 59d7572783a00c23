"""Communicators, arrays, requirements and kernels, as a person uses them."""

import ctypes
import os
import pathlib
import subprocess
import sys
import textwrap

import devcomm
import numpy
import pytest

HANDLES = r"""
#include <cuda_fp16.h>
#include <devcomm/devcomm.cuh>
using namespace devcomm;

struct settings { float factor; int offset; };

template <class T>
__global__ void all_reduce(device_comm comm, lsa::ll_handle mailboxes, const T* input, T* output, unsigned long count) {
  lsa::ll_session session{block{}, comm, mailboxes, blockIdx.x};
  const collective::slice packs = collective::slice_of_block(collective::packs_of<T>(count));
  collective::all_reduce_one_shot<T>(session, packs, collective::from_memory<T>{input, count},
                                     collective::to_memory<T>{output, count}, sum{});
}

__global__ void scratch(device_comm comm, buffer_handle<float> room, window data, settings s, bool twice) {
  float* mine = comm.buffer(room).local();
  mine[threadIdx.x] = s.factor * threadIdx.x + s.offset;
  __syncthreads();
  float* out = reinterpret_cast<float*>(data.local_pointer());
  out[threadIdx.x] = mine[blockDim.x - 1 - threadIdx.x] * (twice ? 2 : 1);
}

__global__ void pass_on(device_comm comm, lsa::signal_handle signals, sym_ptr<int> data) {
  lsa::signal_session signal{block{}, comm, signals, 0};
  const int next = (comm.lsa_rank() + 1) % comm.lsa_size;
  data.lsa(next)[0] = comm.rank;
  signal.add(next, 1);
  signal.take((comm.lsa_rank() + comm.lsa_size - 1) % comm.lsa_size, 1);
}
"""


def test_arrays():
    def rank(comm):
        array = comm.empty((4, 6), numpy.float32, name="weights")
        assert (array.shape, array.ndim, array.size, array.nbytes, array.dtype) == ((4, 6), 2, 24, 96, "float32")
        view = numpy.from_dlpack(array)
        assert (view == 0).all()
        view[:] = comm.rank
        assert numpy.asarray(array).ctypes.data == view.ctypes.data == array.data_ptr
        comm.barrier()
        for peer in range(comm.size):
            assert (numpy.asarray(array.peer(peer)) == peer).all()
            assert array.peer(peer).rank == peer
        comm.barrier()
        numpy.asarray(array[1:3])[:] = 7
        assert (view[1:3] == 7).all() and (view[0] == comm.rank).all()
        array[:1].set(numpy.arange(6))
        assert (array.get()[0] == numpy.arange(6)).all() and (view[0] == numpy.arange(6)).all()
        array.set(comm.rank)
        assert array.view("int32").dtype == "int32" and array.view("uint8").shape == (4, 24)
        assert array.reshape(24).shape == (24,) and array.reshape((2, 12)).shape == (2, 12)
        assert comm.empty(0, "bfloat16").nbytes == 0 and comm.empty((), "int64").shape == ()
        comm.barrier()
        del array
        return view  # keeps the memory, and the communicator

    views = devcomm.run_ranks(rank, 3)
    assert [int(view[0, 0]) for view in views] == [0, 1, 2]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda c: c.empty(4, "float31"), "'float31' is no element type; take one of float32"),
        (lambda c: c.empty(-1), "a shape has sizes from 0"),
        (lambda c: c.empty((2**40, 2**40)), "more elements than any memory holds"),
        (lambda c: c.empty(4, place="shelf"), "place is 'device' or 'pinned_host'"),
        (lambda c: c.empty(4, multimem="yes"), "multimem is 'none', 'required' or 'or_software'"),
        (lambda c: c.empty(4).peer(5), "rank 5 is none of the LSA team"),
        (lambda c: c.empty(4)[::2], "without a step"),
        (lambda c: c.empty(4)[1], "elements are in numpy.asarray(array)"),
        (lambda c: c.empty(4).reshape(5), "has 4 elements and the shape 5"),
        (lambda c: c.empty(4, "int32").set(0.5), "Cannot cast"),
        (lambda c: c.empty(4).set([1, 2]), "could not be broadcast together"),
        (lambda c: c.empty(3, "uint8").view("float32"), "are not whole elements"),
        (lambda c: c.register(numpy.zeros(4)), "peers cannot reach; copy it into an array of Communicator.empty"),
        (lambda c: c.register([1, 2]), "is no array; take one of numpy, torch, CuPy or JAX"),
        (lambda c: c.requirements().lsa_barriers(0), "count is a number from 1; it is 0"),
        (lambda c: c.requirements().add_mailboxes("lll", 1, 1), "protocol is 'll', 'lamport' or 'll128'"),
        (lambda c: devcomm.compile("nothing.cu"), "there is no file nothing.cu"),
        (lambda c: devcomm.compile("int x;\n"), "has no kernel"),
        (lambda c: devcomm.compile(HANDLES, options=["-z"]), "unknown option '-z'"),
        (lambda c: (c.close(), c.barrier()), "barrier: the communicator has been closed"),
        (lambda c: c.synchronize("yes"), "a stream is an object of torch, CuPy or cuda.core"),
    ],
)
def test_bad_input(call, says):
    with pytest.raises((devcomm.Error, TypeError, ValueError)) as caught:
        devcomm.run_ranks(call, 1)
    assert says in str(caught.value)


def test_requirements_and_handles():
    def rank(comm):
        kernels = devcomm.compile(HANDLES, kernels=["all_reduce<float>", "all_reduce<__half>"], name="handles.cu")
        needs = comm.requirements().lsa_barriers(2).whole_world()
        mailboxes = needs.add_mailboxes("ll", 2, 512)
        room = needs.add_buffer(32, "float32")
        signals = needs.add_signals(1)
        device_comm = comm.create_device_comm(needs)
        comm.prepare(kernels)

        for name, dtype in (("all_reduce<float>", "float32"), ("all_reduce<__half>", "float16")):
            source = numpy.full(777, comm.rank + 1, dtype)
            result = numpy.zeros(777, dtype)
            kernels[name](2, 32)(device_comm, mailboxes, source, result, 777)
            comm.synchronize()
            assert (result == comm.size * (comm.size + 1) / 2).all()

        class Settings(ctypes.Structure):
            _fields_ = [("factor", ctypes.c_float), ("offset", ctypes.c_int)]

        data = comm.empty(32, "float32")
        kernels.scratch(1, 32)(device_comm, room, data, Settings(2, 5), True)
        comm.synchronize()
        assert (numpy.asarray(data) == 2 * (2 * numpy.arange(31, -1, -1) + 5)).all()

        sent = comm.empty(1, "int32")
        kernels.pass_on(1, 32)(device_comm, signals, sent)
        comm.synchronize()
        assert int(numpy.asarray(sent)[0]) == (comm.rank - 1) % comm.size
        comm.check()

        for arguments, says in [
            ((device_comm, signals, data, Settings(), True), "the handle is a devcomm::lsa::signal_handle"),
            ((device_comm, room, data, b"1234", True), "has 8 bytes, and was given 4"),
            ((device_comm, room, data, Settings(), 1), "takes True or False; it was given a int"),
            ((device_comm, room, data[1:], Settings(), True), "a window has no offset"),
            ((device_comm, room, numpy.zeros(4), Settings(), True), "takes an array of Communicator.empty or register"),
        ]:
            with pytest.raises(devcomm.InvalidArgument) as caught:
                kernels.scratch(1, 32)(*arguments)
            assert says in str(caught.value)
        for shape, says in [
            ((data, 32), "a tuple of up to three; it is"),
            ((0, 32), "grid is a number from 1"),
            (((1, 1, 1, 1), 32), "up to three; it is (1, 1, 1, 1)"),
            ((1, (32, 2.5)), "block is a number from 1"),
            ((1, (2**31 - 1,) * 3), "block has more than 1024 threads; it is (2147483647,"),
        ]:
            with pytest.raises(devcomm.InvalidArgument) as caught:
                kernels.scratch(*shape)
            assert says in str(caught.value)
        comm.barrier()

    devcomm.run_ranks(rank, 3)


def test_a_kernel_that_there_is_not():
    with pytest.raises(devcomm.CompileError, match=r"kernels=\['scale<flat>'\]:1:.* error: .flat. was not declared"):
        devcomm.compile("template <class T> __global__ void scale(T*) {}\n", kernels=["scale<flat>"])


def test_a_new_view_shows_what_was_launched():
    def rank(comm):
        kernels = devcomm.compile("__global__ void fill(int* x, int n) { if (threadIdx.x < n) x[threadIdx.x] = 7; }\n")
        data = comm.empty(32, "int32")
        kernels.fill(1, 32)(data, 32)
        assert (numpy.asarray(data) == 7).all()
        kernels.fill(1, 32)(comm.empty(32, "int32"), 32)  # freed when the device is idle
        comm.close()
        with pytest.raises(devcomm.InvalidArgument, match="has been closed"):
            comm.empty(3)

    devcomm.run_ranks(lambda comm: rank(comm.split(comm.rank)), 2)


def test_split_and_gathering():
    def rank(comm):
        assert comm.all_gather(bytes([comm.rank])) == [bytes([i]) for i in range(comm.size)]
        child = comm.split(comm.rank % 2, -comm.rank)
        assert child.size == 2 and child.rank == (0 if comm.rank >= 2 else 1)
        child.barrier()
        assert comm.split(-1 if comm.rank == 0 else 0) is None or comm.rank != 0
        assert comm.properties["backend"] == "simulator" and comm.properties["lsa"].available
        assert comm.lsa_ranks == [0, 1, 2, 3] and comm.world.size == comm.lsa.size == 4
        assert comm.lsa.inner(2).size == 2

    devcomm.run_ranks(rank, 4)


def test_compiler_errors_have_the_users_lines(tmp_path):
    source = tmp_path / "kernel.cu"
    header = tmp_path / "part.cuh"
    source.write_text('#include "part.cuh"\n__global__ void k(int* x) { part(x); }\n')
    header.write_text("__device__ void part(int* x) {\n  *x = nothing;\n}\n")
    with pytest.raises(devcomm.CompileError, match=r"part\.cuh:2:8: error: .nothing. was not declared"):
        devcomm.compile(source)
    header.write_text("__device__ void part(int* x) {\n  *x = 1;\n}\n")
    first = devcomm.compile(source)
    assert devcomm.compile(source) is first
    header.write_text("__device__ void part(int* x) {\n  *x = 2;\n}\n")
    second = devcomm.compile(source)

    def rank(comm):
        data = comm.empty(2, "int32")
        first.k(1, 1)(data)
        second.k(1, 1)(data[1:])
        comm.synchronize()
        return numpy.asarray(data).tolist()

    assert devcomm.run_ranks(rank, 1) == [[1, 2]]


CONNECT = textwrap.dedent("""
    import pathlib, sys, time
    import devcomm, numpy

    rank, size, folder, how = int(sys.argv[1]), int(sys.argv[2]), pathlib.Path(sys.argv[3]), sys.argv[4]
    calls = 0

    def all_gather(mine):
        global calls
        calls += 1
        path = folder / f"{calls}.{rank}"
        new = folder / f"new.{calls}.{rank}"
        new.write_bytes(mine)
        new.rename(path)
        names = [folder / f"{calls}.{i}" for i in range(size)]
        while not all(name.exists() for name in names):
            time.sleep(0.01)
        return [name.read_bytes() for name in names]

    class Group:  # of mpi4py
        def Get_rank(self):
            return rank
        def Get_size(self):
            return size
        def allgather(self, mine):
            return all_gather(mine)

    if how == "all_gather":
        comm = devcomm.connect(rank=rank, size=size, all_gather=all_gather, limit=30)
    elif how == "mpi4py":
        comm = devcomm.connect(Group(), limit=30)
    else:
        comm = devcomm.connect(rank=rank, size=size, unique_id=how, limit=30)
    with comm:
        data = comm.empty(3, "int64")
        numpy.asarray(data)[:] = rank
        comm.barrier()
        print(comm.rank, comm.size, [int(numpy.asarray(data.peer(i))[0]) for i in range(size)], data.handle_type)
        comm.barrier()
""")


@pytest.mark.parametrize("how", ["all_gather", "mpi4py", "unique_id"])
def test_processes_connect(tmp_path, how):
    if how == "unique_id":
        how = subprocess.run(
            [sys.executable, "-c", "import devcomm, socket; s = socket.socket(); s.bind(('127.0.0.1', 0)); "
             "p = s.getsockname()[1]; s.close(); print(devcomm.create_unique_id('127.0.0.1', p))"],
            capture_output=True, text=True, check=True,
        ).stdout.strip()  # fmt: skip
    running = [
        subprocess.Popen(
            [sys.executable, "-c", CONNECT, str(rank), "3", str(tmp_path), how], stdout=subprocess.PIPE, text=True
        )
        for rank in range(3)
    ]
    for rank, process in enumerate(running):
        out, _ = process.communicate(timeout=60)
        assert out == f"{rank} 3 [0, 1, 2] file descriptor\n"
        assert process.returncode == 0


def test_types_are_those_of_the_extension(tmp_path):
    """For checkers and the reference: of one backend, as all have the same."""
    folder = pathlib.Path(devcomm.__file__).parent
    made = tmp_path / "_native.pyi"
    command = [sys.executable, "-m", "nanobind.stubgen", "-q", "-m", "_simulator", "-o", str(made)]
    subprocess.run(command, env=os.environ | {"PYTHONPATH": str(folder)}, check=True)
    kept = pathlib.Path(__file__).parents[1] / "src/devcomm/_native.pyi"
    assert made.read_text() == kept.read_text(), f"write it anew: PYTHONPATH={folder} {' '.join(command[:-1])} {kept}"


def test_headers_and_programs():
    assert (pathlib.Path(devcomm.include_path()) / "devcomm/devcomm.cuh").exists()
    folder = pathlib.Path(sys.executable).parent
    if not (folder / "devcomm-simulate").exists():
        pytest.skip("the package is not installed")
    for name in ("devcomm-simulate", "devcomm-litmus"):
        done = subprocess.run([folder / name, "--help"], capture_output=True, text=True, check=True)
        assert name in done.stdout


def test_a_backend_that_there_is_not():
    done = subprocess.run(
        [sys.executable, "-c", "import devcomm"],
        env=os.environ | {"DEVCOMM_BACKEND": "abacus"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "DEVCOMM_BACKEND is 'abacus'; it may be cuda, simulator, simulator_race" in done.stderr
    done = subprocess.run(
        [sys.executable, "-c", "import devcomm; devcomm.run_ranks(print, 2)"],
        env=os.environ | {"DEVCOMM_BACKEND": "cuda"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if not os.path.exists("/dev/nvidia0"):
        assert "devcomm.NotSupported" in done.stderr and "DEVCOMM_BACKEND=simulator" in done.stderr
