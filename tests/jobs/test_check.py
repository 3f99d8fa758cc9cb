#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks of pointers (CUDAW_CHECK) on the simulated driver."""
import os

from simlib import errors_of_cudaw, paused_and_resumed, shared
from gpulib import BUILD, Job, check, equal, main


def pauses_go_on():
    """Four threads, through pauses: none of their pointers is taken for wrong."""
    job = Job("soak", "--threads", 4, "--steps", 100000000, env={"CUDAW_CHECK": "1"})
    job.wait_steps(5)
    paused_and_resumed(job, 5)
    check("every byte right" in job.finish(), "the job did not verify its memory")
    equal(errors_of_cudaw(job), [], "what cudaw says on stderr")


def while_a_library_is_loaded():
    """Its thread has the loader's lock: inside the gate, where a pause waits for us, we need none."""
    job = Job("wrong", "launch-freed-loading", "--cxx", env={
        "CUDAW_CHECK": "1", "TEST_LIBRARY": os.path.join(BUILD, "tests", "preload", "waits.so")})
    equal(job.result().splitlines(), ["CUDA_ERROR_ILLEGAL_ADDRESS", "as before"], "the result")
    said = errors_of_cudaw(job)
    check(said[0].endswith("; kernel upward(unsigned int*, unsigned long)"), f"cudaw says {said}")


def translated(case):
    """The same with translated addresses."""
    name, function = case

    def test():
        os.environ["CUDAW_ADDRESSING"] = "translated"
        try:
            function()
        finally:
            del os.environ["CUDAW_ADDRESSING"]
    return f"{name}, translated", test


# ASan's runtime brings libstdc++.
CASES = shared("checks.py", sanitizers_leave_out=("without_libstdcxx_names_stay_mangled",))
# With translated addresses the driver alone knows what the program maps.
TRANSLATED = [case for case in CASES if not case[0].endswith("set-past-mapped")]

main(*CASES, *map(translated, TRANSLATED),
     *shared("checked.py", "counter", "--steps", 5),
     *shared("checked.py", "calls", "--all", 1, "--steps", 5),
     *shared("checked.py", "soak", "--steps", 5, "--threads", 4), pauses_go_on,
     while_a_library_is_loaded)
