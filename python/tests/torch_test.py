"""devcomm with PyTorch, on CPU tensors in the simulator."""

import os
import socket
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import devcomm  # noqa: E402
import devcomm.torch as dt  # noqa: E402

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.int32]


@pytest.fixture(scope="module")
def group():
    comm = devcomm.connect()
    yield dt.group(comm)
    comm.close()


def calls(group, dtype=torch.float32):
    x = torch.arange(12).reshape(4, 3).to(dtype)
    return [
        (torch.ops.devcomm.all_reduce.default, (x, "sum", group)),
        (torch.ops.devcomm.all_reduce_.default, (x.clone(), "sum", group)),
        (torch.ops.devcomm.reduce_scatter.default, (x, "sum", group)),
        (torch.ops.devcomm.all_gather.default, (x, group)),
        (torch.ops.devcomm.broadcast_.default, (x.clone(), 0, group)),
        (torch.ops.devcomm.all_to_all.default, (x, group)),
    ]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("index", range(6))
def test_opcheck(group, index, dtype):
    operator, arguments = calls(group, dtype)[index]
    torch.library.opcheck(operator, arguments)


def test_compiled_without_a_break(group):
    def layer(x):
        y = dt.all_reduce(x * 2, group) + 1
        dt.all_reduce_(y, group, "max")
        z = dt.all_gather(dt.reduce_scatter(y, group), group)
        dt.broadcast_(z, group)
        return dt.all_to_all(z, group).relu()

    x = torch.randn(8, 5)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x.clone()), layer(x.clone()))
    assert torch._dynamo.explain(layer)(x.clone()).graph_break_count == 0


def test_dlpack_both_ways():
    def rank(comm):
        array = comm.empty((3, 4), torch.bfloat16)
        tensor = torch.from_dlpack(array)
        assert tensor.dtype == torch.bfloat16 and tensor.data_ptr() == array.data_ptr
        tensor.fill_(comm.rank + 1)
        kernels = devcomm.compile(
            "#include <cuda_bf16.h>\n"
            "__global__ void twice(__nv_bfloat16* x, int n) {\n"
            "  if (threadIdx.x < n) x[threadIdx.x] = __nv_bfloat16(2.0f * float(x[threadIdx.x]));\n"
            "}\n"
        )
        other = torch.full((12,), 3, dtype=torch.bfloat16)
        kernels.twice(1, 32)(array, 12)
        comm.synchronize()
        assert (tensor == 2 * (comm.rank + 1)).all()
        peer = torch.from_dlpack(array.peer((comm.rank + 1) % comm.size))
        comm.barrier()
        found = peer[0, 0].item()
        comm.barrier()
        del array
        assert tensor.sum() == 24 * (comm.rank + 1)  # keeps the memory
        return found, other

    assert [found for found, _ in devcomm.run_ranks(rank, 2)] == [4, 2]


PROGRAM = """
import torch, devcomm, devcomm.torch as dt
comm = devcomm.connect()
group = dt.group(comm)
ranks, rank = comm.size, comm.rank

@torch.compile(fullgraph=True, backend="aot_eager")
def step(x):
    return dt.all_gather(dt.reduce_scatter(x, group) + 1, group)

for round in range(3):
    x = torch.arange(4.0 * ranks).reshape(2 * ranks, 2) * (rank + 1)
    expected = torch.arange(4.0 * ranks).reshape(2 * ranks, 2) * (ranks * (ranks + 1) / 2) + 1
    assert torch.equal(step(x), expected)
    y = torch.full((5,), float(rank))
    assert torch.equal(dt.broadcast_(y, group, ranks - 1), torch.full((5,), ranks - 1.0))
print("right")
"""


@pytest.mark.parametrize("ranks", [2, 3])
def test_processes(ranks):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    running = []
    for rank in range(ranks):
        environment = os.environ | {
            "DEVCOMM_RANK": str(rank),
            "DEVCOMM_SIZE": str(ranks),
            "DEVCOMM_ROOT": f"127.0.0.1:{port}",
        }
        running.append(
            subprocess.Popen([sys.executable, "-c", PROGRAM], env=environment, stdout=subprocess.PIPE, text=True)
        )
    for process in running:
        assert process.communicate(timeout=300)[0] == "right\n"
        assert process.returncode == 0


def test_bad_input(group):
    with pytest.raises(devcomm.InvalidArgument, match="group 99 is of no communicator"):
        dt.all_reduce(torch.zeros(3), 99)
    with pytest.raises(devcomm.InvalidArgument, match="op is one of sum"):
        dt.all_reduce(torch.zeros(3), group, "median")
    with pytest.raises(devcomm.InvalidArgument, match="not contiguous"):
        dt.all_reduce_(torch.zeros(3, 4).t(), group)
