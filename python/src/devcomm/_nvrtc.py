"""NVRTC, CUDA's compiler as a library: kernels as cubin, kept on disk."""

from __future__ import annotations

import ctypes
import fcntl
import functools
import glob
import hashlib
import json
import os
import pathlib
import re
import site
import sys
from collections.abc import Iterator
from typing import Any

from devcomm import _native as native
from devcomm._installation import ROOT

Wanted = list[tuple[str, str, str]]

# Instantiated for each kernel's type: its mangled name says which parameters the kernel has.
TYPES = "\ntemplate <class Kernel>\n__global__ void devcomm_kernel_type() {}\n"


def _nvidia_folders(name: str) -> Iterator[str]:
    """Of NVIDIA's packages, which pip installs below `nvidia`."""
    for root in [*site.getsitepackages(), site.getusersitepackages(), *sys.path]:
        yield from sorted(glob.glob(f"{root}/nvidia/*/{name}"), reverse=True)


def _toolkits() -> Iterator[str]:
    yield from (os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name))
    yield "/usr/local/cuda"


@functools.cache
def _library() -> Any:
    names = [f"libnvrtc.so.{version}" for version in (13, 12)]
    folders = [*_nvidia_folders("lib"), *(f"{root}/lib64" for root in _toolkits())]
    for path in [*(f"{folder}/{name}" for name in names for folder in folders), *names]:
        if os.path.sep in path and not os.path.exists(path):
            continue
        try:
            return ctypes.CDLL(path)
        except OSError:
            continue
    raise native.NotSupported(
        "compile: there is no NVRTC (libnvrtc.so.13 or .12); install it by pip install 'devcomm[cuda13]' or "
        "'devcomm[cuda12]', or set CUDA_HOME to a CUDA toolkit"
    )


@functools.cache
def _include_folders() -> tuple[str, ...]:
    """Of devcomm, CUDA and CCCL."""
    candidates = [*_nvidia_folders("include"), *(f"{root}/include" for root in _toolkits())]
    with_cuda = next((f for f in candidates if os.path.exists(f"{f}/cuda_fp16.h")), None)
    if with_cuda is None:
        raise native.NotSupported(
            "compile: there are no headers of CUDA (cuda_fp16.h); install them by pip install 'devcomm[cuda13]' or "
            "'devcomm[cuda12]', or set CUDA_HOME to a CUDA toolkit"
        )
    cccl = [
        f
        for base in [with_cuda, *candidates]
        for f in (base, f"{base}/cccl")
        if os.path.exists(f"{f}/cuda/std/version")
    ]
    return (str(ROOT / "include"), with_cuda, *cccl[:1])


def _check(code: int, call: str) -> None:
    if code != 0:
        library = _library()
        library.nvrtcGetErrorString.restype = ctypes.c_char_p
        raise native.DeviceError(f"{call} failed: {library.nvrtcGetErrorString(code).decode()}")


def _version() -> tuple[int, int]:
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check(_library().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)), "nvrtcVersion")
    return major.value, minor.value


def _text_of(program: Any, size_call: str, call: str) -> bytes:
    size = ctypes.c_size_t()
    _check(getattr(_library(), size_call)(program, ctypes.byref(size)), size_call)
    room = ctypes.create_string_buffer(size.value)
    _check(getattr(_library(), call)(program, room), call)
    return room.raw


class _Program:
    def __init__(self, text: str, name: str) -> None:
        self.handle = ctypes.c_void_p()
        source = text.encode("utf-8", errors="surrogateescape")
        _check(
            _library().nvrtcCreateProgram(ctypes.byref(self.handle), source, name.encode(), 0, None, None),
            "nvrtcCreateProgram",
        )

    def __enter__(self) -> _Program:
        return self

    def __exit__(self, *_: object) -> None:
        _library().nvrtcDestroyProgram(ctypes.byref(self.handle))

    def compile(self, options: list[str], names: list[str], error: type[Exception]) -> tuple[bytes, dict[str, str]]:
        for name in names:
            _check(_library().nvrtcAddNameExpression(self.handle, name.encode()), f"compile: the kernel '{name}'")
        words = [option.encode() for option in options]
        code = _library().nvrtcCompileProgram(self.handle, len(words), (ctypes.c_char_p * len(words))(*words))
        if code != 0:
            log = (
                _text_of(self.handle, "nvrtcGetProgramLogSize", "nvrtcGetProgramLog")
                .rstrip(b"\0")
                .decode(errors="replace")
            )
            raise error(log.strip() or f"NVRTC has failed with error {code}")
        lowered = {}
        for name in names:
            symbol = ctypes.c_char_p()
            _check(
                _library().nvrtcGetLoweredName(self.handle, name.encode(), ctypes.byref(symbol)), "nvrtcGetLoweredName"
            )
            lowered[name] = (symbol.value or b"").decode()
        return _text_of(self.handle, "nvrtcGetCUBINSize", "nvrtcGetCUBIN"), lowered


def _files_of(text: str, folders: list[pathlib.Path]) -> Iterator[tuple[str, bytes]]:
    """The user's files that a source includes, and what is in them."""
    waiting, seen = [(text, folders)], set()
    while waiting:
        content, own = waiting.pop()
        for name in re.findall(r'^[^\S\n]*#[^\S\n]*include[^\S\n]*["<]([^">\n]+)[">]', content, re.MULTILINE):
            path = next((f / name for f in own if (f / name).is_file()), None)
            if path is None or path in seen:
                continue
            seen.add(path)
            data = path.read_bytes()
            yield str(path), data
            waiting.append((data.decode(errors="surrogateescape"), [path.parent, *folders]))


def _stamp_of(folder: str) -> list[tuple[str, int, int]]:
    headers = sorted([*pathlib.Path(folder, "devcomm").rglob("*.hpp"), *pathlib.Path(folder, "devcomm").rglob("*.cuh")])
    return [(str(f), f.stat().st_mtime_ns, f.stat().st_size) for f in headers]


_stamp = functools.cache(_stamp_of)


def compile(  # noqa: A001
    path: pathlib.Path | None, text: str, names: list[str], options: list[str], target: str, error: type[Exception]
) -> tuple[bytes, Wanted]:
    """The cubin, and for each kernel its name, its symbol, and a mangled name that has its type."""
    words = [word for word in options if not word.startswith(("-W", "-f"))]
    folders = [path.parent] if path else []
    for i, word in enumerate(words):
        if word.startswith("-I"):
            folders.append(pathlib.Path(word[2:] or words[i + 1]).resolve())
    include = _include_folders()
    if not any(re.match(r"--?std=", word) for word in words):
        words.append("-std=c++20")
    own = [f"-I{path.parent}"] if path else []
    words = [f"--gpu-architecture={target}", *words, *own, *(f"-I{folder}" for folder in include)]

    key = [text, names, words, _version(), native.layout_version, _stamp(include[0])]
    key += [(name, hashlib.sha256(data).hexdigest()) for name, data in _files_of(text, folders)]
    from devcomm._compile import cache_folder

    folder = cache_folder() / "cubin"
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / hashlib.sha256(json.dumps(key).encode()).hexdigest()[:24]
    with open(f"{kept}.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the other ranks of this host wait for the first
        try:
            symbols = json.loads(kept.with_suffix(".json").read_text())
            return kept.with_suffix(".cubin").read_bytes(), [(n, *symbols[n]) for n in names]
        except (OSError, ValueError, KeyError):
            pass
        types = [f"devcomm_kernel_type<decltype({name})>" for name in names]
        with _Program(text + TYPES, str(path or "source.cu")) as program:
            cubin, lowered = program.compile(words, [*names, *types], error)
        symbols = {name: (lowered[name], lowered[kind]) for name, kind in zip(names, types, strict=True)}
        for suffix, data in ((".cubin", cubin), (".json", json.dumps(symbols).encode())):
            new = kept.with_suffix(f"{suffix}.new")
            new.write_bytes(data)
            os.replace(new, kept.with_suffix(suffix))
    return cubin, [(n, *symbols[n]) for n in names]
