"""Builds the package: scikit-build-core, with the rest of the repository around this folder or copied into it.

An sdist has what the build needs in `source/`; in the repository that is the folder above.
"""

import importlib.util
import pathlib
import shutil
import sys

from scikit_build_core import build as backend
from scikit_build_core.build import get_requires_for_build_editable, get_requires_for_build_sdist  # noqa: F401
from scikit_build_core.build import get_requires_for_build_wheel  # noqa: F401

HERE = pathlib.Path(__file__).resolve().parent
COPY = HERE / "source"
PARTS = ("CMakeLists.txt", "LICENSE", "cmake", "compat", "host", "include", "simulator")


def cuda_headers():
    """The folder with cuda.h that the build requirement has brought."""
    found = importlib.util.find_spec("nvidia")
    for root in found.submodule_search_locations if found else []:
        for header in pathlib.Path(root).glob("*/include/cuda.h"):
            return header.parent
    sys.exit("devcomm: nvidia-cuda-runtime, a build requirement, has brought no cuda.h")


def settings(given):
    source = COPY if COPY.is_dir() else HERE.parent
    result = {
        "cmake.source-dir": str(source),
        "cmake.define.DEVCOMM_CUDA_INCLUDE_DIR": str(cuda_headers()),
        "cmake.define.DEVCOMM_PYTHON_DIR": str(HERE),
    }
    return result | (given or {})


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    return backend.build_wheel(wheel_directory, settings(config_settings), metadata_directory)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    return backend.build_editable(wheel_directory, settings(config_settings), metadata_directory)


def build_sdist(sdist_directory, config_settings=None):
    if COPY.is_dir():
        return backend.build_sdist(sdist_directory, config_settings)
    try:
        for part in PARTS:
            path = HERE.parent / part
            if path.is_dir():
                shutil.copytree(path, COPY / part, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                COPY.mkdir(exist_ok=True)
                shutil.copy(path, COPY / part)
        return backend.build_sdist(sdist_directory, config_settings)
    finally:
        shutil.rmtree(COPY, ignore_errors=True)
