# SPDX-License-Identifier: Apache-2.0
"""The frame of every program here: rounds that each begin anew from the same seeds.

All rounds of a program print the same digest of their results, however many it makes, so a run that
is paused can make as many as it needs. A program makes rounds until stdin ends, at least two, and
for at least --seconds. A package or library that is missing ends it as a skip, with the reason.
"""
import argparse
import ctypes
import glob
import hashlib
import importlib.util
import os
import sys
import sysconfig
import threading
import time

# cuBLAS reads it when its first handle is made; without it, its results may differ between runs.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

SKIP_STATUS = 77


def skip(why):
    print("skip:", why, flush=True)
    sys.exit(SKIP_STATUS)


def need(*packages):
    for package in packages:
        if importlib.util.find_spec(package) is None:
            skip(f"no Python package {package} on this machine")


def library(name):
    """CUDA's library @name, of the loader, the toolkit or a Python package. Some packages put a
    number into its name: libnvjpeg.36e11081.so.13."""
    site = sysconfig.get_path("purelib")
    stem, _, version = name.partition(".so.")
    paths = [name, f"/usr/local/cuda/lib64/{name}",
             *sorted(glob.glob(f"{site}/nvidia/*/lib/{name}")),
             *sorted(glob.glob(f"{site}/*.libs/{stem}.*.so.{version}"))]
    for path in paths:
        try:
            return ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        except OSError:
            continue
    return skip(f"no {name} on this machine")


def deterministic(torch):
    """An operation that has no deterministic variant warns, and runs."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = False
    return torch


def as_bytes(result):
    if isinstance(result, bytes):
        return result
    if hasattr(result, "detach"):       # PyTorch
        result = result.detach().cpu()
        # NumPy has no bfloat16; as float it is exact.
        return (result.float() if "bfloat16" in str(result.dtype) else result).numpy().tobytes()
    if hasattr(result, "copy_to_host"):     # Numba
        return result.copy_to_host().tobytes()
    if hasattr(result, "get"):      # CuPy
        return result.get().tobytes()
    import numpy    # JAX, and NumPy itself; some programs need none of them
    return numpy.asarray(result).tobytes()


def digest(*results):
    found = hashlib.sha256()
    for result in results:
        found.update(as_bytes(result))
    return found.hexdigest()[:16]


def run(one_round):
    """Make rounds; each is a call of the function, which returns the digest of its results."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=3)
    seconds = parser.parse_known_args()[0].seconds
    stdin_ended = threading.Event()

    def wait_for_the_end():
        while os.read(0, 4096):
            pass
        stdin_ended.set()
    threading.Thread(target=wait_for_the_end, daemon=True).start()
    start = time.monotonic()
    count = 0
    while count < 2 or time.monotonic() - start < seconds or not stdin_ended.is_set():
        count += 1
        print("round", count, one_round(), flush=True)
