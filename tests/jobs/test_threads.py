#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Threads that end, with CUDA calls from their destructors, on the simulated driver."""
from simlib import SANITIZED, errors_of_cudaw, paused_and_resumed, skipped
from gpulib import Job, check, equal, main


def pauses_among_threads_that_end():
    job = Job("destructors", "--steps", 1000000, "--step-ms", 10)
    for _ in range(5):
        job.wait_steps(job.steps() + 3)
        paused_and_resumed(job)
    check("every word right" in job.finish(), "the job did not verify its memory")
    equal(errors_of_cudaw(job), [], "what cudaw said on the job's stderr")


def no_call_is_a_cancellation_point():
    """As natively: a thread that is cancelled leaves no lock and no file behind."""
    job = Job("cancelled")
    check("no call was" in job.result(), "a call was cancelled")
    equal(errors_of_cudaw(job), [], "what cudaw said on the job's stderr")


if SANITIZED:
    pauses_among_threads_that_end = skipped(
        pauses_among_threads_that_end, "sanitizers do not see the system call that ends a thread")

main(pauses_among_threads_that_end, no_call_is_a_cancellation_point)
