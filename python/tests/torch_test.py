"""devcomm with PyTorch, on CPU tensors in the simulator."""

import os
import pathlib
import re
import socket
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import devcomm  # noqa: E402
import devcomm.torch as dt  # noqa: E402
from devcomm import ops  # noqa: E402

FLOAT8 = [torch.float8_e4m3fn, torch.float8_e5m2]
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
        (
            torch.ops.devcomm.all_to_all_v.default,
            (x, torch.tensor([3]), x.new_zeros(4, 3), torch.zeros(1, dtype=torch.int64), group),
        ),
        (
            torch.ops.devcomm.send_receive.default,
            ([x, x[1:]], [0, 0], [x.new_zeros(4, 3), x.new_zeros(3, 3)], [0, 0], group),
        ),
        (
            torch.ops.devcomm.all_reduce_rms_norm.default,
            (
                rows := torch.randn(4, 256).to(dtype if dtype.is_floating_point else torch.float32),
                rows.clone(),
                rows[0],
                1e-6,
                group,
            ),
        ),
        *(
            (
                torch.ops.devcomm.all_reduce_rms_norm_quantized.default,
                (rows, rows.clone(), rows[0], torch.zeros(4, 256, dtype=kind), scale, scales, 1e-6, group),
            )
            for kind, scale, scales in (
                (torch.float8_e4m3fn, torch.tensor([0.01]), None),
                (torch.float8_e5m2, None, torch.zeros(4, 2)),
            )
        ),
    ]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("index", range(11))
def test_opcheck(group, index, dtype):
    operator, arguments = calls(group, dtype)[index]
    checks = ["test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic"]
    # It multiplies tensors, which PyTorch does not with 8 bits.
    if not any(isinstance(each, torch.Tensor) and each.dtype in FLOAT8 for each in arguments):
        checks.append("test_schema")
    torch.library.opcheck(operator, arguments, test_utils=checks)
    torch.library.opcheck(operator, arguments, {"max_blocks": 1, "dependent": True}, test_utils=checks)


def test_compiled_without_a_break(group):
    def layer(x):
        y = dt.all_reduce(x * 2, group) + 1
        dt.all_reduce_(y, group, "max")
        z = dt.all_gather(dt.reduce_scatter(y, group), group)
        dt.broadcast_(z, group)
        came, number = torch.zeros_like(z), torch.zeros(1, dtype=torch.int64)
        dt.all_to_all_v(dt.all_to_all(z, group), torch.tensor([6]), came, number, group)
        norm = dt.all_reduce_rms_norm(came, z, torch.ones(128), group, max_blocks=2) * number
        mine, scales = torch.zeros_like(norm), torch.zeros(8, 1)
        dt.send_receive([(norm, 0)], [(mine, 0)], group, dependent=True)
        out = torch.zeros(8, 128, dtype=torch.float8_e4m3fn)
        out = dt.all_reduce_rms_norm_quantized(mine, z, torch.ones(128), out, group, scales=scales)
        return out.float() * scales + mine.relu() + z

    x = torch.randn(8, 128)
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


def test_gradients():
    """Of the sum of all ranks' losses, against torch's own of what one process computes."""

    def rank(comm):
        n, me, group = comm.size, comm.rank, dt.group(comm)
        weights = [torch.arange(1.0, 1 + 8 * n * n).reshape(4 * n, 2 * n) + r for r in range(n)]
        inputs = [torch.randn(4 * n, 2 * n, generator=torch.Generator().manual_seed(r)) for r in range(n)]

        def loss(y, r):
            return (y * weights[r].flatten()[: y.numel()].reshape(y.shape)).sum()

        for ours, alone in (
            (lambda x: dt.all_reduce(x, group), lambda xs, r: sum(xs)),
            (lambda x: dt.all_reduce(x, group, "average", max_blocks=1), lambda xs, r: sum(xs) / n),
            (lambda x: dt.reduce_scatter(x, group), lambda xs, r: sum(xs).chunk(n)[r]),
            (lambda x: dt.reduce_scatter(x, group, "average"), lambda xs, r: sum(xs).chunk(n)[r] / n),
            (lambda x: dt.all_to_all(x, group), lambda xs, r: torch.cat([x.chunk(n)[r] for x in xs])),
            (lambda x: dt.all_gather(x[:4], group), lambda xs, r: torch.cat([x[:4] for x in xs])),
        ):
            x = inputs[me].clone().requires_grad_()
            loss(ours(x), me).backward()
            all_of = [each.clone().requires_grad_() for each in inputs]
            sum(loss(alone(all_of, r), r) for r in range(n)).backward()
            assert torch.allclose(x.grad, all_of[me].grad, rtol=1e-5), x.grad - all_of[me].grad
        with pytest.raises(devcomm.NotSupported, match="and none with 'max'"):
            dt.all_reduce(inputs[0].requires_grad_(), group, "max").sum().backward()
        for call in (lambda x: dt.all_reduce_(x, group), lambda x: ops.all_reduce(comm, x)):
            with pytest.raises(devcomm.NotSupported, match="all_reduce: the tensor requires a gradient"):
                call(inputs[0].requires_grad_() * 1)
            with torch.no_grad():
                call(inputs[0].clone().requires_grad_())
        parameter = torch.nn.Parameter(torch.full((3,), me + 1.0))
        with torch.no_grad():
            ops.all_reduce(comm, parameter, "max", out=parameter)
        assert (parameter == n).all()

    devcomm.run_ranks(rank, 3)


def test_custom_all_reduce():
    def rank(comm):
        custom = dt.CustomAllreduce(comm, max_size=1024)
        x = torch.full((8, 4), comm.rank + 1.0, dtype=torch.bfloat16)
        assert not custom.disabled and custom.should_custom_ar(x)
        with custom.capture():
            total = custom.custom_all_reduce(x)
        custom.register_graph_buffers()
        assert torch.equal(total, torch.full((8, 4), 6.0, dtype=torch.bfloat16))
        assert torch.equal(custom.all_reduce(x, out=x), total) and torch.equal(x, total)
        for left_out in (torch.zeros(1000), torch.zeros(4, 8).t(), torch.zeros(4, dtype=torch.int32), torch.zeros(0)):
            assert custom.custom_all_reduce(left_out) is None
        custom.close()
        assert custom.custom_all_reduce(x) is None and not comm.closed

    devcomm.run_ranks(rank, 3)
    devcomm.run_ranks(lambda comm: dt.CustomAllreduce(comm).disabled or pytest.fail("one rank needs none"), 1)


def test_the_guides_program():
    guide = (pathlib.Path(__file__).parents[2] / "docs/python.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"^```py\n(.*?)^```$", guide, re.MULTILINE | re.DOTALL)
    names = {}
    exec(program, names)
    assert names["y"].shape == (4, 64) and names["comm"].size == 1
    names["comm"].close()


def test_bad_input(group):
    with devcomm.connect() as comm, pytest.raises(devcomm.NotSupported, match="simulated GPUs have no CUDA memory"):
        comm.pool()
    with pytest.raises(devcomm.InvalidArgument, match="group 99 is of no communicator"):
        dt.all_reduce(torch.zeros(3), 99)
    with pytest.raises(devcomm.InvalidArgument, match="op is one of sum"):
        dt.all_reduce(torch.zeros(3), group, "median")
    with pytest.raises(devcomm.InvalidArgument, match="1 tensors go to 2 ranks"):
        torch.ops.devcomm.send_receive([torch.zeros(3)], [0, 0], [], [], group)
    with pytest.raises(devcomm.InvalidArgument, match="not contiguous"):
        dt.all_reduce_(torch.zeros(3, 4).t(), group)
    with pytest.raises(devcomm.InvalidArgument, match="negatives of its elements; give it resolve_neg"):
        ops.all_reduce(dt._comm(group), torch._neg_view(torch.ones(3)))
