#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Memory that is allocated in a green context is the primary context's, through pauses too."""
from gpulib import Job, check, equal, main, same_lines

GOOD = "green: every word right"
MIB = 1 << 20


def paused(job, times=6):
    for i in range(times):
        job.wait_steps(job.steps() + 10)
        job.pause(("signal", "command")[i % 2])
        job.check_still(0.1)
        job.resume()
    job.wait_steps(job.steps() + 10)
    check(GOOD in job.finish(), "the job did not end well")


def green_contexts_as_natively():
    same_lines(Job("green", "--steps", 40).result(), Job("green", "--steps", 40, mode="native").result(),
               "under cudaw")


def green_contexts_through_pauses():
    paused(Job("green", "--late", 1, "--steps", 100000, "--step-ms", 2))


def green_contexts_whose_context_stays():
    paused(Job("green", "--late", 1, "--steps", 100000, "--step-ms", 2, env={"CUDAW_RELEASE": "memory"}))


def the_last_green_context_ends_the_primary_one():
    job = Job("green", "--last", 1, "--late", 1, "--steps", 100000, "--step-ms", 2)
    job.wait_steps(10)
    equal(job.status()["carried"] < 100 * MIB, True, "the memory of the ended context is gone")
    paused(job)


main(green_contexts_as_natively, green_contexts_through_pauses, green_contexts_whose_context_stays,
     the_last_green_context_ends_the_primary_one)
