"""The extension module of the backend: CUDA's GPUs, simulated ones, or those under the race detector."""

import ctypes
import glob
import importlib
import os

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


_module = importlib.import_module(f"devcomm._{choose()}")
globals().update({name: value for name, value in vars(_module).items() if not name.startswith("__")})
library = _module.__file__
detects_races = _module.__name__.endswith("_race")
