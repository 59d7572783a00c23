"""Chooses the extension module: CUDA's GPUs, simulated ones, or those under the race detector."""

import ctypes
import glob
import importlib
import os
from types import ModuleType

BACKENDS = ("cuda", "simulator", "simulator_race")


def has_gpu() -> bool:
    """Whether this machine has a GPU and its driver. Asks neither: a process that asked could not fork any more."""
    devices = glob.glob("/dev/nvidia[0-9]*") + glob.glob("/dev/dxg") + glob.glob("/dev/nvhost-gpu")
    if not devices or os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return False
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def choose() -> str:
    chosen = os.environ.get("DEVCOMM_BACKEND", "")
    if chosen and chosen not in BACKENDS:
        raise ImportError(f"DEVCOMM_BACKEND is '{chosen}'; it may be {', '.join(BACKENDS)}, or unset")
    return chosen or ("cuda" if has_gpu() else "simulator")


native: ModuleType = importlib.import_module(f"devcomm._{choose()}")
