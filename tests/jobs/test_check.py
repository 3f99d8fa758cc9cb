#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks of pointers (CUDAW_CHECK) on the simulated driver."""
from simlib import errors_of_cudaw, paused_and_resumed, shared
from gpulib import Job, check, equal, main


def pauses_go_on():
    """Four threads, through pauses: none of their pointers is taken for wrong."""
    job = Job("soak", "--threads", 4, "--steps", 100000000, env={"CUDAW_CHECK": "1"})
    job.wait_steps(5)
    paused_and_resumed(job, 5)
    check("every byte right" in job.finish(), "the job did not verify its memory")
    equal(errors_of_cudaw(job), [], "what cudaw says on stderr")


# The simulated driver has no copies of two dimensions, and ASan's runtime brings libstdc++.
main(*shared("checks.py", leave_out=("copy-2d-past",),
             sanitizers_leave_out=("without_libstdcxx_names_stay_mangled",)),
     *shared("checked.py", "counter", "--steps", 5),
     *shared("checked.py", "soak", "--steps", 5, "--threads", 4), pauses_go_on)
