#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The GPU test of copies between GPUs without peer access, on two simulated GPUs; and such copies if
the GPUs cannot access each other's memory.
"""
import os

os.environ["CUDAW_SIM_DEVICES"] = "2"

# pylint: disable=wrong-import-position
from simlib import shared  # noqa: E402
import gpulib  # noqa: E402
from gpulib import check, equal, main  # noqa: E402

APART = {"CUDAW_SIM_NO_PEERS": "1"}
# cudaw leaves these to the driver's copies between contexts; the others fail.
STAGED = ("cuMemcpy", "cuMemcpyAsync", "cuMemcpyDtoD", "cuMemcpyPeer", "cuMemcpy2D", "cuMemcpy3D")
NOT_STAGED = ("Batch", "HtoD")

gpulib.gpu_count = lambda: 2
cases = shared("across.py")
across = cases[-1][1].__globals__


def is_staged(name):
    return name.startswith(STAGED) and not any(word in name for word in NOT_STAGED)


def copies_between_GPUs_apart(*extra):
    for number, name in enumerate(across["names"](), 1):
        job = across["copies"](number, *extra, env=APART)
        if is_staged(name):
            check(across["GOOD"] in job.result(), f"{name}: the job did not end well")
        else:
            equal(job.wait_end(), 1, f"{name}: the exit status")
            check(job.discard().rstrip().endswith("error 1"), f"{name}: it said something else")
        check(across["GOOD"] in across["copies"](number, *extra, mode="native", env=APART).result(),
              f"{name}: the native job did not end well")


def copies_of_opened_memory_between_GPUs_apart():
    copies_between_GPUs_apart("--opened", 1)


def copies_of_parts_of_a_row_between_GPUs_apart():
    number = across["names"]().index("cuMemcpy2D") + 1
    for env in (APART, {}):
        job = gpulib.Job("across", "--call", number, "--row", 1, "--steps", 4, env=env)
        check(across["GOOD"] in job.result(), "the job did not end well")


main(*cases, copies_of_parts_of_a_row_between_GPUs_apart, copies_between_GPUs_apart,
     copies_of_opened_memory_between_GPUs_apart)
