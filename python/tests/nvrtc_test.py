"""What is compiled for GPUs, which needs none."""

import time

import devcomm
import pytest
from devcomm import _nvrtc, ops


def compiled(text, names, options=(), path=None):
    return _nvrtc.compile(path, text, names, list(options), "sm_90", devcomm.CompileError)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    try:
        _nvrtc._library(), _nvrtc._include_folders()
    except devcomm.NotSupported as problem:
        pytest.skip(str(problem))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


SESSION = "devcomm::lsa::lamport_session<devcomm::block>"


def test_operators_and_the_cache():
    names = [
        f"devcomm::ops::{name}"
        for name in (
            f"all_reduce_one_shot<__nv_bfloat16, devcomm::sum, {SESSION}>",
            f"all_reduce_rms_norm<__half, {SESSION}>",
            f"all_reduce_rms_norm<__half, {SESSION}, devcomm::ops::rows_with_scales<__nv_fp8_e4m3>>",
            "all_to_all_v<unsigned int, devcomm::lsa::ll_session<devcomm::block>>",
            ops.SEND_RECEIVE,
        )
    ]
    text = ops.SOURCE.read_text()
    cubin, wanted = compiled(text, names, path=ops.SOURCE)
    assert cubin[:4] == b"\x7fELF" and [name for name, _, _ in wanted] == names
    times = []
    for _ in range(5):
        begin = time.monotonic()
        assert compiled(text, names, path=ops.SOURCE) == (cubin, wanted)
        times.append(time.monotonic() - begin)
    assert min(times) < 0.05, times


def test_errors_have_the_users_lines():
    with pytest.raises(devcomm.CompileError, match=r"mine\.cu\(3\): error: .*undeclared_name"):
        compiled(
            '#line 1 "mine.cu"\n#include <devcomm/devcomm.cuh>\n\n__global__ void k() { undeclared_name(); }\n', ["k"]
        )


def test_files_that_are_included_count(tmp_path):
    header = tmp_path / "value.hpp"
    source = '#include "value.hpp"\n__global__ void k(int* p) { *p = VALUE; }\n'
    made = []
    for value in (1, 2, 1):
        header.write_text(f"#define VALUE {value}\n")
        made.append(compiled(source, ["k"], [f"-I{tmp_path}"])[0])
    assert made[0] == made[2] != made[1]
