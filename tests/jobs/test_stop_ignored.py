#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""SIGTSTP in an orphaned process group, where the kernel ignores it, and no SIGSTOP follows: the job goes on."""
import signal

from simlib import is_stopped, process_used
from gpulib import Job, check, main


def it_goes_on_by_itself():
    job = Job("counter", "--mib", 32, "--verify", 1, "--steps", 10000000, "--step-ms", 5, start_new_session=True)
    job.wait_steps(3)
    job.send(signal.SIGTSTP)
    job.until(lambda: not process_used(job.pid), 20, "the GPU is free")
    job.wait_steps(job.steps() + 3, 120)
    check(not is_stopped(job.pid), "it is stopped")
    check("every word right" in job.finish(), "the job did not verify its memory")


main(it_goes_on_by_itself)
