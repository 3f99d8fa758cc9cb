#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""checked.py PROGRAM [ARG]...: with CUDAW_CHECK=1 the program does what it does natively, none of
its pointers is taken for wrong, and of every kernel that it launches the driver knows the
parameters that were read from the program. Of cuFFT's kernels the driver alone does: cuFFT's CUDA
runtime loads them by functions of the driver that have no name.
"""
import os
import re
import sys

from gpulib import SCRATCH, Job, check, equal, main, same_lines

PROGRAM, ARGS = sys.argv[1], sys.argv[2:]
LOG = os.path.join(SCRATCH, "log")
KNOWN = re.compile(r": parameters from the image, as the driver says$"
                   r"|_fftI.*: parameters from the driver, its image unseen$")


def nothing_is_wrong():
    native = Job(PROGRAM, *ARGS, mode="native").result(timeout=240)
    checks = {"CUDAW_CHECK": "1", "CUDAW_LOG": "debug", "CUDAW_LOG_FILE": LOG}
    same_lines(Job(PROGRAM, *ARGS, env=checks).result(timeout=240), native, "with checks")
    with open(LOG, encoding="utf-8", errors="replace") as file:
        lines = file.read().splitlines()
    equal([line for line in lines if " check: " in line], [], "what the checks found")
    kernels = [line for line in lines if " images: " in line]
    check(kernels, "no kernel was launched")
    bad = [line for line in kernels if not KNOWN.search(line)]
    equal(bad, [], f"what is not known of {len(kernels)} kernels")
    print(f"# {len(kernels)} kernels", flush=True)


main((f"{PROGRAM} with checks", nothing_is_wrong))
