"""devcomm.testing and its plugin find what is wrong, and say how to repeat it."""

import re
import subprocess
import sys

import devcomm
import pytest
from devcomm import testing

KERNELS = r"""
#include <devcomm/devcomm.cuh>
using namespace devcomm;

__global__ void add_up(device_comm comm, sym_ptr<float> input, sym_ptr<float> output, int count) {
  lsa::barrier_session barrier{block{}, comm, blockIdx.x};
  SYNC;
  const int stride = gridDim.x * blockDim.x;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) {
    float sum = 0;
    for (int rank = 0; rank < comm.lsa_size; ++rank) sum += input.lsa(rank)[i];
    output.local()[i] = sum;
  }
  SYNC;
}

__global__ void fill(sym_ptr<float> to, float value, int count) {
  for (int i = threadIdx.x; i < count; i += blockDim.x) to.local()[i] = value;
}

__global__ void fill_plain(device_comm, float* to, float value, int count) {
  for (int i = threadIdx.x; i < count; i += blockDim.x) to[i] = value;
}

__global__ void copy_of_first(sym_ptr<float> data, int count) {
  for (int i = threadIdx.x; i < count; i += blockDim.x) data.local()[i] = data.lsa(0)[i];
}
"""

TESTS = (
    f"KERNELS = r'''{KERNELS}'''\n"
    + r"""
import devcomm
import numpy
import pytest

RIGHT = "-DSYNC=barrier.sync(memory_order::acq_rel)"
COUNT = 100

def check(comm, sync=RIGHT, grid=None):
    kernels = devcomm.compile(KERNELS, options=[sync], name="add_up.cu")
    device_comm = comm.create_device_comm(comm.requirements().lsa_barriers(2))
    source = comm.empty(COUNT, name="input")
    result = comm.empty(COUNT, name="output")
    kernels.fill(1, 32)(source, comm.rank + 1, COUNT)
    kernels.add_up(grid or 2, 32)(device_comm, source, result, COUNT)
    comm.synchronize()
    comm.check()
    assert (numpy.asarray(result) == comm.size * (comm.size + 1) / 2).all()

@pytest.mark.simulate(seeds=20, ranks=[2, 3])
def test_right():
    devcomm.run_ranks(check)

@pytest.mark.simulate(seeds=20, ranks=2)
def test_without_barrier():
    devcomm.run_ranks(check, None, "-DSYNC=static_cast<void>(0)")

@pytest.mark.simulate(seeds=2, ranks=2)
def test_another_grid():
    devcomm.run_ranks(lambda comm: check(comm, RIGHT, 1 + comm.rank))

def wrong_type(comm):
    kernels = devcomm.compile(KERNELS, options=[RIGHT], name="add_up.cu")
    kernels.fill(1, 32)(comm.empty(COUNT, "float64"), 1, COUNT)

@pytest.mark.simulate(seeds=2, ranks=2)
def test_wrong_type():
    devcomm.run_ranks(wrong_type)

def over_to_the_other(comm, meets):
    kernels = devcomm.compile(KERNELS, options=[RIGHT], name="add_up.cu")
    data = comm.empty(COUNT, name="data")
    comm.barrier()
    if comm.rank == 0:
        kernels.fill(1, 32)(data, 1, COUNT)
        comm.synchronize()
    if meets:
        comm.barrier()
    if comm.rank == 1:
        kernels.copy_of_first(1, 32)(data, COUNT)
        comm.synchronize()
        assert (numpy.asarray(data) == 1).all()
    comm.barrier()

@pytest.mark.simulate(seeds=20, ranks=2)
def test_the_host_orders():
    devcomm.run_ranks(over_to_the_other, None, True)

@pytest.mark.simulate(seeds=20, ranks=2)
def test_the_host_does_not_order():
    devcomm.run_ranks(over_to_the_other, None, False)

def past_the_end(comm, of_host, more):
    kernels = devcomm.compile(KERNELS, options=[RIGHT], name="add_up.cu")
    for count in (1, COUNT, 1021):
        if of_host:
            device_comm, array = comm.create_device_comm(comm.requirements()), numpy.zeros(count, "float32")
            kernels.fill_plain(1, 32)(device_comm, array, 1, count + more)
        else:
            kernels.fill(1, 32)(comm.empty(count, name="data"), 1, count + more)
        comm.synchronize()

@pytest.mark.simulate(seeds=2, ranks=2)
def test_up_to_the_end():
    devcomm.run_ranks(past_the_end, None, True, 0)
    devcomm.run_ranks(past_the_end, None, False, 0)

@pytest.mark.simulate(seeds=2, ranks=2)
def test_past_the_end():
    devcomm.run_ranks(past_the_end, None, False, 1)

@pytest.mark.simulate(seeds=2, ranks=2)
def test_past_the_end_of_numpys():
    devcomm.run_ranks(past_the_end, None, True, 1)

SPINS = "__global__ void spin(volatile int* x) { while (*x == 0) {} }"

def spin(comm):
    devcomm.compile(SPINS).spin(1, 1)(comm.empty(1, "int32"))
    comm.synchronize()

@pytest.mark.simulate(seeds=1, ranks=2)
def test_hangs():
    devcomm.run_ranks(spin)

@pytest.mark.simulate(seeds=0)
def test_without_seeds():
    pass

@pytest.mark.simulate(ranks=[])
def test_without_ranks():
    pass

@pytest.mark.simulate(seeds=1)
def test_skipped():
    pytest.skip("not today")

@pytest.mark.xfail
@pytest.mark.simulate(seeds=1)
def test_known_to_fail():
    assert False
"""
)

PROGRAM = r"""
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
__global__ void add(int* counter) { %s; }
int main() {
  int* counter = nullptr;
  int found = 0;
  cudaMalloc(&counter, 4);
  cudaMemset(counter, 0, 4);
  add<<<2, 4>>>(counter);
  cudaMemcpy(&found, counter, 4, cudaMemcpyDeviceToHost);
  if (cudaDeviceSynchronize() != cudaSuccess) return 1;
  std::printf("%%d\n", found);
}
"""


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    folder = tmp_path_factory.mktemp("marked")
    (folder / "test_marked.py").write_text(TESTS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rs", "test_marked.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    parts = re.split(r"_{5,} (test_\w+) _{5,}", done.stdout)
    return dict(zip(parts[1::2], parts[2::2], strict=True)), done.stdout, folder


def test_what_is_right_passes(outcome):
    assert "test_right" not in outcome[0] and "test_the_host_orders" not in outcome[0], outcome[1]
    assert "9 failed, 3 passed, 1 skipped, 1 xfailed" in outcome[1], outcome[1]
    assert re.search(r"^SKIPPED .*: not today$", outcome[1], re.MULTILINE), outcome[1]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("test_without_barrier", ["data race", "of window 'input' of rank", "add_up.cu:1", "--devcomm-seed"]),
        ("test_another_grid", ["launch mismatch", " blocks of 32 threads where rank ", "--devcomm-seed 1"]),
        (
            "test_the_host_does_not_order",
            ["data race", "of window 'data' of rank 0", "copy_of_first", "--devcomm-seed"],
        ),
        ("test_past_the_end", ["access past the end of memory", "bytes past the end of the 4", "of window 'data' of"]),
        ("test_past_the_end_of_numpys", ["0 bytes past the end of the 4 of an array of the host", "in fill_plain"]),
        ("test_hangs", ["deadlock", "rank 1, block 0, thread 0: polls plain or volatile memory"]),
        ("test_without_seeds", ["seeds and ranks are numbers from 1"]),
        ("test_without_ranks", ["seeds and ranks are numbers from 1"]),
        ("test_wrong_type", ["argument 1 of kernel fill", "takes elements of float32, and the array has float64"]),
    ],
)
def test_mistakes_are_found_and_named(outcome, name, says):
    for text in says:
        assert text in outcome[0][name], outcome[0][name]


def test_a_failure_is_repeated(outcome):
    line = re.search(r"to repeat it: (.+)", outcome[0]["test_without_barrier"])
    command = line[1].replace("python -m", f"{sys.executable} -m")
    done = subprocess.run(command, shell=True, cwd=outcome[2], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "data race" in done.stdout, done.stdout


def test_programs(tmp_path):
    right, wrong = tmp_path / "right.cu", tmp_path / "wrong.cu"
    right.write_text(PROGRAM % "atomicAdd(counter, 1)")
    wrong.write_text(PROGRAM % "*counter += 1")
    assert len(testing.simulate(right, ranks=1, seeds=4).runs) == 4
    with pytest.raises(testing.SimulationFailed, match="data race") as caught:
        testing.simulate(wrong, ranks=1, seeds=4)
    assert re.search(r"to repeat it: devcomm-simulate \S*wrong.cu --race --ranks 1 --seed 1", str(caught.value))
    found = testing.simulate(wrong, ranks=1, seeds=4, check=False)
    assert len(found.failures) == 4 and found.failures[0].result == "race"
    with pytest.raises(devcomm.InvalidArgument, match="there is no file"):
        testing.simulate(tmp_path / "nothing.cu")
    wrong.write_text("int main() { return nothing; }")
    with pytest.raises(testing.SimulationFailed, match="wrong.cu:1"):
        testing.simulate(wrong)
