#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""fidelity.py: the driver answers the same natively and under cudaw, but for the differences that
are known. A difference that is new fails, and so does a known one that is gone: then its row goes.
"""
import os
import subprocess

from gpulib import BUILD, CUDAW, Skip, base_environment, equal, gpu_count, main

PROGRAM = os.path.join(BUILD, "tests", "programs", "fidelity")
CASES = {"free_waits": 1, "free_async": 1, "free_async_busy": 1, "free_captured": 1,
         "alloc_captured": 1, "host_free": 1,
         "full": 1, "full_captured": 1, "captured_full": 1, "pool_gives_back": 1, "attributes": 1,
         "green": 1, "fault": 1, "peer_copy": 2, "peer_busy": 2, "peer_contexts": 2}
ENDED = "how the program ended"

# By case, the questions that cudaw answers otherwise than the driver alone [H200, 580.159].
KNOWN = {
    "free_captured": {
        *(f"cuMemFree of {size} KiB in a {mode} capture"
          for size in (4, 65536) for mode in ("global", "thread local")),
        "  the capture's end",
        "  freed again",
    },
    "alloc_captured": {
        *(f"cuMemAlloc in a {mode} capture" for mode in ("global", "thread local")),
        "  of 64 MiB",
        *(f"the end of the {mode} capture" for mode in ("global", "thread local")),
    },
    "full_captured": {"an allocation in its place"},
    "pool_gives_back": {"the same while a pool of the program keeps half"},
    "attributes": {"cuIpcGetMemHandle of an inner pointer",
                   "the value of IS_LEGACY_CUDA_IPC_CAPABLE"},
    # After a copy between two GPUs each has access to the other's memory.
    "peer_copy": {"cuMemsetD32 of the other GPU's memory", "synchronising after it"},
}
# And those that come out either way.
SOMETIMES = {"full": {"cuStreamCreate on a GPU with 200 MiB freed, shown free"}}


def answers(case, *command):
    """What the program answers: a list of (question, answer), as questions come again."""
    done = subprocess.run([*command, PROGRAM, case], capture_output=True, text=True, timeout=120,
                          env=base_environment())
    rows = [tuple(line.rsplit(": ", 1)) for line in done.stdout.splitlines()]
    return [*rows, (ENDED, str(done.returncode))]


def compare(case):
    def run():
        if gpu_count() < CASES[case]:
            raise Skip(f"{CASES[case]} GPUs needed, {gpu_count()} here")
        native, wrapped = answers(case), answers(case, CUDAW, "run", "--")
        different = {row[0] for row in set(native) ^ set(wrapped)} - SOMETIMES.get(case, set())
        for row in native:
            print(f"# natively: {': '.join(row)}")
        for row in wrapped:
            if row not in native:
                print(f"# cudaw:    {': '.join(row)}")
        equal(sorted(different), sorted(KNOWN.get(case, ())), "what is answered otherwise")
    return f"the driver's answers, {case}", run


main(*[compare(case) for case in CASES])
