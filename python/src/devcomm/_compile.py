"""Compiles a person's own CUDA kernels: by NVRTC for GPUs, by a C++ compiler for simulated ones."""

from __future__ import annotations

import hashlib
import os
import pathlib
import re
import shutil
import threading
from collections.abc import Sequence
from typing import Any

from devcomm import _native as native
from devcomm._installation import ROOT, import_tools
from devcomm._kernels import kernels_of


class CompileError(native.Error):  # type: ignore[misc, name-defined]
    """A source does not compile; the text is the compiler's."""


CompileError.__module__ = "devcomm"


def include_path() -> str:
    """The folder of devcomm's headers, for compilers."""
    return str(ROOT / "include")


def cache_folder() -> pathlib.Path:
    """Where compiled kernels are kept: `$XDG_CACHE_HOME/devcomm`, or below `~/.cache`."""
    root = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(root) / "devcomm"


class Module:
    """Kernels of one source; each is an attribute of its name. Those that are templates, or that two namespaces have,
    are found by `module["scale<float>"]`."""

    def __init__(self, source: str, kernels: dict[str, Any]) -> None:
        self.source = source
        self.kernels = kernels

    def __getitem__(self, name: str) -> Any:
        if name in self.kernels:
            return self.kernels[name]
        raise native.InvalidArgument(f"{self.source} has no kernel '{name}'; {self._advice()}")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        matching = [kernel for each, kernel in self.kernels.items() if each == name or each.endswith(f"::{name}")]
        if len(matching) == 1:
            return matching[0]
        if len(matching) > 1:
            raise AttributeError(f"{self.source} has several kernels '{name}'; take one by module['namespace::{name}']")
        raise AttributeError(f"{self.source} has no kernel '{name}'; {self._advice()}")

    def _advice(self) -> str:
        return (
            f"it has {', '.join(self.kernels) or 'none'}. Kernels that are templates, or that an included file has, are "
            "named when the source is compiled: compile(source, kernels=['scale<float>'])"
        )

    def __repr__(self) -> str:
        return f"<devcomm module {self.source}: {', '.join(self.kernels)}>"


_modules: dict[str, Module] = {}
_lock = threading.Lock()
_turns: dict[str, threading.Lock] = {}


def compile(  # noqa: A001
    source: str | os.PathLike[str],
    *,
    kernels: Sequence[str] = (),
    options: Sequence[str] = (),
    name: str = "source.cu",
    device: int = 0,
) -> Module:
    """The kernels of a CUDA source: a file's path, or the text itself, which messages call `name`.

    `kernels` names what is not found by itself: instances of templates, and kernels of included files. `options` are
    the compiler's: `-I`, `-D`, `-std=c++17`. What has been compiled is kept on disk; ranks that compile the same source
    at once compile it once.
    """
    path, text = _read(source)
    if path is None:
        text = f'#line 1 "{name}"\n{text}'
    title = str(path or name)
    names = list(dict.fromkeys([*kernels_of(text), *kernels]))
    if not names:
        raise native.InvalidArgument(
            f"{title} has no kernel: a __global__ function, or instances of templates that "
            "kernels=['scale<float>'] names"
        )
    key = hashlib.sha256(repr((title, text, names, list(options), os.environ.get("CXX"))).encode()).hexdigest()[:24]
    with _lock:
        turn = _turns.setdefault(key, threading.Lock())
    with turn:  # one thread compiles, the others get what it made
        if path is None and key in _modules:
            return _modules[key]
        target = native.architecture(device)
        build = _for_gpus if native.backend == "cuda" else _for_simulated_gpus
        library, wanted = build(path, text, names, list(options), target)
        # Included files may have changed: then it is another library.
        made = f"{key} {library if isinstance(library, str) else hashlib.sha256(library).hexdigest()}"
        if made not in _modules:
            loaded = native.load(library, wanted)
            _modules[made] = Module(title, dict(zip(names, loaded, strict=True)))
        _modules[key] = _modules[made]
        return _modules[made]


def _read(source: str | os.PathLike[str]) -> tuple[pathlib.Path | None, str]:
    if isinstance(source, str) and ("\n" in source or "__global__" in source):
        return None, source
    path = pathlib.Path(source).resolve()
    if not path.is_file():
        raise native.InvalidArgument(f"compile: there is no file {source}")
    return path, path.read_text(encoding="utf-8", errors="surrogateescape")


def _write(path: pathlib.Path, text: str) -> pathlib.Path:
    data = text.encode("utf-8", errors="surrogateescape")
    if not path.exists() or path.read_bytes() != data:
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}")
        new.write_bytes(data)
        os.replace(new, path)
    return path


# --- simulated GPUs ---


def _for_simulated_gpus(
    path: pathlib.Path | None, text: str, names: list[str], options: list[str], target: str
) -> tuple[str, list[tuple[str, str, str]]]:
    import_tools()
    import devcomm_builder

    tag = hashlib.sha256(repr((str(path), path is None and text, names)).encode()).hexdigest()[:16]
    folder = cache_folder() / "sources" / tag
    if path is None:
        path = _write(folder / "text" / "source.cu", text)
    lines = [f'#include "{path.name}"', "#include <devcomm/simulator/detail/kernel_library.hpp>"]
    for i, name in enumerate(names):
        lines.append(f"#line 1 \"kernels=['{_quoted(name)}']\"")
        lines.append(f'static auto devcomm_kernel_{i}() {{ return DEVCOMM_KERNEL("{_quoted(name)}", {name}); }}')
    lines.append(f"DEVCOMM_KERNEL_LIBRARY({', '.join(f'devcomm_kernel_{i}()' for i in range(len(names)))})")
    main = _write(folder / "main" / "devcomm_library.cu", "\n".join(lines) + "\n")

    build = devcomm_builder.BuildOptions()
    build.sources = [str(main)]
    build.folders = [path.parent]
    build.compiler = ["-fPIC"]
    build.arch = int(re.sub(r"\D", "", target))
    _take_options(build, options)
    # The extension module has the simulator.
    try:
        with devcomm_builder.Builder(build, devcomm_builder.Installation()) as builder:
            made = builder.build_library("race" if native.detects_races else "plain", native.library)
            # A process loads one library of a name: another content, another name.
            library = folder / f"{hashlib.sha256(made.read_bytes()).hexdigest()[:24]}.so"
            if not library.exists():
                new = f"{library}.{os.getpid()}.{threading.get_ident()}"
                shutil.copy(made, new)
                os.replace(new, library)
    except devcomm_builder.NotCompiled as problem:
        raise CompileError(_readable(str(problem), builder.folder)) from None
    except devcomm_builder.WrongUse as problem:
        raise native.NotSupported(str(problem)) from None
    return str(library), [(name, "", "") for name in names]


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _take_options(build: Any, options: list[str]) -> None:
    waiting = list(options)
    while waiting:
        word = waiting.pop(0)
        if word == "-I":
            build.folders.append(pathlib.Path(waiting.pop(0)).resolve())
        elif word.startswith("-I"):
            build.folders.append(pathlib.Path(word[2:]).resolve())
        elif word.startswith(("-std=", "--std=")):
            build.standard = word.split("=", 1)[1]
        elif word.startswith(("-D", "-U", "-O", "-W", "-f", "-g", "-m")):
            build.compiler.append(word)
        elif word.startswith("--"):
            continue  # NVRTC's alone, such as --use_fast_math
        else:
            raise native.InvalidArgument(
                f"compile: unknown option '{word}'; there are -I, -D, -U, -O, -W, -std=, and NVRTC's that begin with --"
            )


def _readable(text: str, folder: pathlib.Path) -> str:
    """The compiler's text with the user's paths."""
    return text.replace(f"{folder}/overlay", "")


# --- GPUs ---


def _for_gpus(
    path: pathlib.Path | None, text: str, names: list[str], options: list[str], target: str
) -> tuple[bytes, list[tuple[str, str, str]]]:
    from devcomm import _nvrtc

    return _nvrtc.compile(path, text, names, options, target, CompileError)
