#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""watchdog.py [PAUSE_S [TORCH_S]]: a program whose watchdog thread asks for events is not ended by its
monitor while it is paused for PAUSE_S seconds, nor while a pause waits for a kernel. Nor is PyTorch
by its NCCL watchdog's, while it is paused for TORCH_S seconds.
"""
import sys
import time

from gpulib import Job, check, main

PAUSE_S = float(sys.argv[1]) if len(sys.argv) > 1 else 6
PATIENCE = 200          # rounds of the monitor, which take 2 s at least
TORCH_S = float(sys.argv[2]) if len(sys.argv) > 2 else 12
HEARTBEAT_S = 5         # the same of PyTorch's


def watched(*args, **env):
    return Job("watchdog", "--steps", 1000000, "--step-ms", 2, "--patience", PATIENCE, *args,
               env=env)


def verified(job):
    check("every word right" in job.finish(), "the job did not verify its memory")


def goes_on(job, pause_s):
    for seconds in 0.1, pause_s, 0.1:
        job.wait_steps(job.steps() + 3)
        job.pause()
        time.sleep(seconds)
        job.check_still()
        job.resume()
    job.wait_steps(job.steps() + 3)
    verified(job)


def paused_with_the_context_on_the_gpu():
    goes_on(watched(CUDAW_RELEASE="memory"), PAUSE_S)


def paused_with_the_whole_gpu_released():
    goes_on(watched(CUDAW_RELEASE="all"), PAUSE_S)


def torch(release):
    job = Job("nccl_watchdog.py", "--steps", 1000000, "--step-ms", 20, "--heartbeat-s", HEARTBEAT_S,
              env={"CUDAW_RELEASE": release})
    job.wait_steps(10, timeout=120)
    goes_on(job, TORCH_S)


def pytorch_with_the_context_on_the_gpu():
    torch("memory")


def pytorch_with_the_whole_gpu_released():
    torch("all")


def while_a_pause_waits_for_a_kernel():
    job = watched("--spin-ms", 2 * 10 * PATIENCE)
    job.wait_line("spinning")
    job.pause()
    job.resume()
    job.wait_steps(job.steps() + 1)
    verified(job)


main(paused_with_the_context_on_the_gpu, while_a_pause_waits_for_a_kernel,
     paused_with_the_whole_gpu_released, pytorch_with_the_context_on_the_gpu,
     pytorch_with_the_whole_gpu_released)
