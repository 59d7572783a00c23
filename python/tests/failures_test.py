"""Ranks that fail, die, or leave early, Ctrl-C, and the end of the interpreter."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import devcomm
import pytest

SOURCE = r"""
#include <devcomm/devcomm.cuh>
using namespace devcomm;
__global__ void meet(device_comm comm) {
  lsa::barrier_session barrier{block{}, comm, blockIdx.x};
  barrier.sync(memory_order::acq_rel);
}
"""

PROGRAM = f"SOURCE = r'''{SOURCE}'''\n" + textwrap.dedent("""
    import os, signal, sys, time
    import devcomm

    def say(*words):
        print(f"{time.monotonic():.3f}", *words, flush=True)

    def wait_for_all(comm):
        kernels = devcomm.compile(SOURCE)
        device_comm = comm.create_device_comm(comm.requirements().lsa_barriers(1))
        comm.prepare(kernels)
        kernels.meet(1, 32)(device_comm)
        comm.synchronize()
        say("together")
        if comm.rank == 1:
            return leave(comm)
        begin = time.monotonic()
        try:
            if wait == "kernel":
                kernels.meet(1, 32)(device_comm)
                comm.synchronize()
                comm.check()
            else:
                comm.barrier()
                comm.barrier()
        except devcomm.RemoteError as error:
            say("heard", error.rank, error)
            raise SystemExit(7)

    def leave(comm):
        say("leaves")
        if how == "raise":
            raise ValueError("out of beans")
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "exit":
            raise SystemExit(0)

    how, wait = sys.argv[1:]
    devcomm.run_ranks(wait_for_all)
""")


@pytest.fixture(scope="module")
def compiled():
    devcomm.compile(SOURCE)


def start_one(program, *arguments, **options):
    """A process of its own, which Ctrl-C ends even where the tests run in the background and ignore it."""
    heeds = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    command = [sys.executable, "-c", heeds + program, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def start(program, ranks, *arguments, port, only=None):
    running = []
    for rank in only or range(ranks):
        environment = os.environ | {
            "DEVCOMM_RANK": str(rank),
            "DEVCOMM_SIZE": str(ranks),
            "DEVCOMM_ROOT": f"127.0.0.1:{port}",
        }
        running.append(start_one(program, *arguments, env=environment))
    return running


def free_port():
    import socket

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("wait", ["host", "kernel"])
@pytest.mark.parametrize(
    ("how", "reason"),
    [("raise", "ValueError: out of beans"), ("kill", "ended"), ("exit", "SystemExit"), ("return", "")],
)
def test_others_hear_of_it_within_a_second(compiled, how, reason, wait, ranks):
    running = start(PROGRAM, ranks, how, wait, port=free_port())
    said = [process.communicate(timeout=60) for process in running]
    left = float(next(line for line in said[1][0].splitlines() if "leaves" in line).split()[0])
    for rank, (out, err) in enumerate(said):
        if rank == 1:
            continue
        heard = [line for line in out.splitlines() if " heard " in line]
        assert heard, (rank, out, err)
        assert float(heard[0].split()[0]) - left < 1, heard
        if how != "return":  # then the others' ends are as much of a reason
            assert heard[0].split()[2] == "1", heard
        assert reason in heard[0], heard
        assert running[rank].returncode == 7


def test_a_rank_of_this_process_that_raises_is_named():
    def rank(comm):
        if comm.rank == 2:
            raise KeyError("no such key")
        comm.barrier()

    begin = time.monotonic()
    with pytest.raises(KeyError, match="no such key") as caught:
        devcomm.run_ranks(rank, 4)
    assert time.monotonic() - begin < 1.5
    assert "raised on rank 2 of 4" in caught.value.__notes__


def test_a_rank_of_this_process_that_returns_early_is_named():
    def rank(comm):
        if comm.rank != 1:
            comm.create_device_comm(comm.requirements())

    begin = time.monotonic()
    with pytest.raises(devcomm.RemoteError, match="rank 1 has left before it took part") as caught:
        devcomm.run_ranks(rank, 3)
    assert time.monotonic() - begin < 1.5
    assert caught.value.rank == 1


def test_ctrl_c_ends_all_ranks_of_a_process(compiled):
    program = f"SOURCE = r'''{SOURCE}'''\n" + textwrap.dedent("""
        import devcomm, time

        def rank(comm):
            kernels = devcomm.compile(SOURCE)
            device_comm = comm.create_device_comm(comm.requirements().lsa_barriers(1))
            if comm.rank == 1:
                comm.barrier()  # which rank 0 does not reach
            kernels.meet(1, 32)(device_comm)
            print("waits", flush=True)
            comm.synchronize()
            comm.check()

        devcomm.run_ranks(rank, 2)
    """)
    process = start_one(program)
    assert process.stdout.readline() == "waits\n", process.communicate()
    time.sleep(0.5)
    begin = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert time.monotonic() - begin < 1
    assert process.returncode != 0
    assert "KeyboardInterrupt" in err, err


def test_ctrl_c_ends_a_process_that_waits_for_others():
    program = "import devcomm\nprint('waits', flush=True)\ndevcomm.connect(limit=60)\n"
    process = start(program, 2, port=free_port(), only=[0])[0]
    assert process.stdout.readline() == "waits\n"
    time.sleep(0.5)
    begin = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert time.monotonic() - begin < 1
    assert "KeyboardInterrupt" in err, err


def test_nothing_is_said_when_the_interpreter_ends_with_live_objects(compiled):
    program = f"SOURCE = r'''{SOURCE}'''\n" + textwrap.dedent("""
        import devcomm, numpy
        comm = devcomm.connect()
        array = comm.empty(1000, "float32")
        view = numpy.from_dlpack(array)
        kernels = devcomm.compile(SOURCE)
        device_comm = comm.create_device_comm(comm.requirements().lsa_barriers(1))
        kernels.meet(1, 32)(device_comm)
        keep = [comm, array, view, kernels, device_comm]
    """)
    running = start(program, 2, port=free_port())
    for process in running:
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out, err) == (0, "", "")


def test_cycles_leave_nothing_behind():
    """Descriptors, threads and memory after many communicators are as after a few."""

    def resources():
        with open("/proc/self/status", encoding="utf-8") as status:
            kib = next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))
        return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")), kib

    def rank(comm):
        array = comm.empty(1000, "float32")
        comm.create_device_comm(comm.requirements().lsa_barriers(1))
        return array.size

    for _ in range(20):
        devcomm.run_ranks(rank, 2)
    before = resources()
    for _ in range(1000):
        devcomm.run_ranks(rank, 2)
    after = resources()
    deadline = time.monotonic() + 5  # a thread that has been joined is listed a moment longer
    while after[1] > before[1] and time.monotonic() < deadline:
        time.sleep(0.01)
        after = resources()
    assert after[0] <= before[0], (before, after)
    assert after[1] <= before[1], (before, after)
    assert after[2] <= before[2] + 8192, (before, after)
