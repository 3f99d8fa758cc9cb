#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The watchdog of tests/gpu on the simulated driver, which counts the calls that wait in it: none does
during its checkpoint.
"""
import contextlib
import os

from simlib import SCRATCH, shared
from gpulib import equal, main

COUNTS = os.path.join(SCRATCH, "counts")


def none_waits_in_the_driver(name, case):
    def counted():
        with contextlib.suppress(FileNotFoundError):
            os.unlink(COUNTS)
        case()
        with open(COUNTS, encoding="ascii") as file:
            blocked = [line.strip() for line in file if line.startswith("blocked:")]
        equal(blocked, [], "the calls that waited inside the driver during its checkpoint")
    return name, counted


os.environ["CUDAW_SIM_COUNT"] = COUNTS     # of the case's job
os.environ["CUDAW_SIM_STRICT"] = "1"
main(*[none_waits_in_the_driver(*case) for case in
       shared("watchdog.py", leave_out=("pytorch_with_the_context_on_the_gpu",
                                        "pytorch_with_the_whole_gpu_released"),
              tsan_leaves_out=("paused_with_the_whole_gpu_released",))])
