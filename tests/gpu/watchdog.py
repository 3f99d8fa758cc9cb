#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""watchdog.py [PAUSE_S]: a program whose watchdog thread asks for events is not ended by its
monitor while it is paused for PAUSE_S seconds, nor while a pause waits for a kernel.
"""
import sys
import time

from gpulib import Job, check, main

PAUSE_S = float(sys.argv[1]) if len(sys.argv) > 1 else 6
PATIENCE_MS = 2000      # of the monitor


def watched(*args, **env):
    return Job("watchdog", "--steps", 1000000, "--step-ms", 2, "--patience-ms", PATIENCE_MS, *args,
               env=env)


def verified(job):
    check("every word right" in job.finish(), "the job did not verify its memory")


def paused(release):
    job = watched(CUDAW_RELEASE=release)
    for seconds in PAUSE_S, 0.1, 0.1:
        job.wait_steps(job.steps() + 3)
        job.pause()
        time.sleep(seconds)
        job.check_still()
        job.resume()
    job.wait_steps(job.steps() + 3)
    verified(job)


def paused_with_the_context_on_the_gpu():
    paused("memory")


def paused_with_the_whole_gpu_released():
    paused("all")


def while_a_pause_waits_for_a_kernel():
    job = watched("--spin-ms", 2 * PATIENCE_MS)
    job.wait_line("spinning")
    job.pause()
    job.resume()
    job.wait_steps(job.steps() + 1)
    verified(job)


main(paused_with_the_context_on_the_gpu, while_a_pause_waits_for_a_kernel,
     paused_with_the_whole_gpu_released)
