#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A paused job that is told to end must end, not hang where it waits."""
import signal

from gpulib import Job, check, gpu_used, idle_gpu_used, jobs, main, until

ENDLESS = ("--steps", 1000000, "--step-ms", 2)
LIMIT = 15

MIB = 1024


def paused(program, *args):
    job = Job(program, *args, *ENDLESS)
    job.wait_steps(3)
    job.pause()
    job.check_still()
    return job


def ends(job, sig, *statuses):
    job.send(sig)
    status = job.wait_end(LIMIT)
    check(status in statuses, f"it ended with {status}, not with {statuses}")
    until(lambda: job.pid not in jobs(), 5, "cudaw ps shows it no more")


def sigterm_by_default():
    ends(paused("counter"), signal.SIGTERM, -signal.SIGTERM)


def sigterm_with_a_handler_that_exits():
    ends(paused("counter", "--term-exit", 9), signal.SIGTERM, 9)


def sigterm_with_such_a_handler_and_the_runtime():
    """exit() runs the destructors of libcudart, which calls the driver."""
    ends(paused("static_rt", "--term-exit", 9), signal.SIGTERM, 9)


def sigterm_with_a_handler_in_python():
    """Python's handlers wait until the call that the job is held in returns or is given up."""
    ends(paused("ctypes_job.py"), signal.SIGTERM, 7, -signal.SIGTERM)


def sigkill_leaves_nothing():
    idle = idle_gpu_used()
    ends(paused("counter", "--mib", MIB), signal.SIGKILL, -signal.SIGKILL)
    until(lambda: gpu_used() <= idle, 10, "the GPU's memory is as before")


main(sigterm_by_default, sigterm_with_a_handler_that_exits,
     sigterm_with_such_a_handler_and_the_runtime, sigterm_with_a_handler_in_python,
     sigkill_leaves_nothing)
