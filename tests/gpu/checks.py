#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""checks.py [ADDRESSING]: wrong pointers are named before the GPU sees them (CUDAW_CHECK), and right
ones are not.
"""
import os
import re
import sys

from gpulib import Job, check, equal, main

TYPED = "; kernel upward(unsigned int*, unsigned long)"
FREED = "which was freed"
# Case: what the line says behind "is 0x...".
WRONG = {
    "launch-freed": ("cuLaunchKernel: parameter 0", "8 bytes into", FREED + TYPED),
    "launch-large-freed": ("cuLaunchKernel: parameter 0", "(4194304 bytes at", FREED + TYPED),
    "launch-behind": ("cuLaunchKernel: parameter 0", "8 bytes past the end of allocation 1 (4096",
                      TYPED),
    "launch-never": ("cuLaunchKernel: parameter 0", "in no allocation", TYPED),
    "launch-untyped-freed": ("cuLaunchKernel: parameter 0", FREED + "; kernel increment"),
    "launch-struct-freed": ("cuLaunchKernel: parameter 0, byte 16,", FREED + "; kernel add_pair"),
    "launch-ex-freed": ("cuLaunchKernelEx: parameter 0", FREED + TYPED),
    "launch-packed-freed": ("cuLaunchKernel: parameter 0", FREED + TYPED),
    "launch-short-freed": ("cuLaunchKernel: parameter 0, byte 8,", FREED + "; kernel add_pair"),
    "launch-kernel-freed": ("cuLaunchKernel: parameter 0", FREED + TYPED),
    "launch-function-freed": ("cuLaunchKernel: parameter 0", FREED + TYPED),
    "launch-reloaded-freed": ("cuLaunchKernel: parameter 0", FREED + TYPED),
    "copy-out-freed": ("cuMemcpyDtoH_v2: srcDevice", "(4096 bytes at", FREED),
    "copy-in-freed": ("cuMemcpyHtoDAsync_v2: dstDevice", FREED),
    "copy-within-freed": ("cuMemcpyDtoD_v2: srcDevice", FREED),
    "copy-past": ("cuMemcpyDtoH_v2: srcDevice", "run 4 bytes past the end of allocation"),
    "copy-2d-past": ("cuMemcpy2D_v2: srcDevice", "run 16 bytes past the end of allocation"),
    "copy-out-to-freed": ("cuMemcpyDtoH_v2: dstHost", FREED),
    "copy-in-from-freed": ("cuMemcpyHtoD_v2: srcHost", FREED),
    "copy-2d-from-freed": ("cuMemcpy2D_v2: srcHost", FREED),
    "set-past": ("cuMemsetD32_v2: dstDevice", "run 4 bytes past the end of allocation"),
    "set-past-mapped": ("cuMemsetD8_v2: dstDevice",
                        "run 4 bytes past the memory that the program has mapped"),
    "set-freed": ("cuMemsetD8Async: dstDevice", FREED),
}
# A valid program may pass these pointers and never follow them.
GO_ON = {"launch-behind", "launch-never", "launch-untyped-freed", "launch-struct-freed",
         "launch-short-freed"}
DRIVER_MAY_REFUSE = {"launch-short-freed"}      # the packed parameters are too few


def run(case, *args, value="1"):
    """Returns the lines of stdout, and what cudaw said."""
    job = Job("wrong", case, *args, env={"CUDAW_CHECK": value})
    lines = job.result().splitlines()
    equal(lines[1], "as before", "the memory and the context")
    said = [line for line in job.stderr().splitlines() if line.startswith("cudaw[")]
    return lines[0], said, re.findall("0x[0-9a-f]+", job.stderr())


def is_named(case, said, addresses):
    equal(len(said), 1, f"the number of lines in {said}")
    for text in WRONG[case]:
        check(text in said[0], f"'{text}' is not in '{said[0]}'")
    if "freed" in case:
        freed = addresses[2 if "large" in case else 1]
        check(f"bytes at {freed})" in said[0], f"the allocation {freed} is not in '{said[0]}'")


def wrong(case):
    def test():
        for value in ("1", "strict"):
            result, said, addresses = run(case, "--cxx", value=value)
            if value == "strict" or case not in GO_ON:
                equal(result, "CUDA_ERROR_ILLEGAL_ADDRESS", f"the result with {value}")
            elif case not in DRIVER_MAY_REFUSE:
                equal(result, "CUDA_SUCCESS", "the result of a call that goes on")
            else:
                check(result != "CUDA_ERROR_ILLEGAL_ADDRESS", "the check refused it")
            is_named(case, said, addresses)
    test.__name__ = case
    return test


def right(case):
    def test():
        equal(run(case)[:2], ("CUDA_SUCCESS", []), "the result, and what was said")
    test.__name__ = case
    return test


def without_libstdcxx_names_stay_mangled():
    said = run("launch-freed")[1]
    check(said[0].endswith("; kernel _Z6upwardPjm"), f"cudaw says '{said[0]}'")


def a_warning_lets_the_call_go_on():
    result, said, addresses = run("launch-freed", "--cxx", value="warn")
    equal(result, "CUDA_SUCCESS", "the result")
    is_named("launch-freed", said, addresses)


def without_checks_nothing_is_said():
    for value in ("", "0"):
        equal(run("launch-freed", value=value)[:2], ("CUDA_SUCCESS", []),
              "the result, and what was said")


def a_value_that_is_not_known():
    result, said, _ = run("launch-freed", value="yes")
    equal((result, len(said)), ("CUDA_ERROR_ILLEGAL_ADDRESS", 2), "the result, and lines said")
    check("CUDAW_CHECK=yes: expected" in said[0], f"cudaw says '{said[0]}'")


def native_memory_is_not_judged():
    job = Job("wrong", "launch-freed", env={"CUDAW_CHECK": "1", "CUDAW_TO_DRIVER": "memory"})
    equal(job.result().splitlines(), ["CUDA_SUCCESS", "as before"], "the result")
    said = [line for line in job.stderr().splitlines() if line.startswith("cudaw[")]
    equal(len(said), 1, f"the number of lines in {said}")
    check("CUDAW_CHECK=1: nothing is checked with CUDAW_TO_DRIVER=memory" in said[0],
          f"cudaw says '{said[0]}'")


if sys.argv[1:]:
    os.environ["CUDAW_ADDRESSING"] = sys.argv[1]
    del WRONG["set-past-mapped"]    # the driver's own then
main(*map(wrong, WRONG),
     *map(right, ("right-launches", "right-copies", "right-hosts", "right-batch",
                  "right-mapped", "right-queries")),
     without_libstdcxx_names_stay_mangled, a_warning_lets_the_call_go_on,
     without_checks_nothing_is_said, a_value_that_is_not_known, native_memory_is_not_judged)
