#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A kernel that does not end: the pause gives up in time and the job is as it was."""
import time

from gpulib import Job, check, cudaw, equal, main


def pause_gives_up():
    job = Job("spin", "--steps", 1000000, "--step-ms", 5)
    job.wait_line("spinning")
    job.wait_steps(5)
    start = time.monotonic()
    done = cudaw("pause", "--timeout", 2, job.pid)
    took = time.monotonic() - start
    equal(done.returncode, 5, "the exit code of cudaw pause --timeout 2")
    check(2 <= took <= 30, f"it took {took:.1f} s")
    equal(done.stderr, f"cudaw: pause {job.pid}: kernels did not end within 2 s; the job runs on "
          "(--timeout waits longer)\n", "what it says")
    equal(job.state(), "running", "the state after it")
    job.wait_steps(job.steps() + 5, timeout=5)
    check("spin: the kernel ended" in job.finish(), "the job did not end by itself")


main(pause_gives_up)
