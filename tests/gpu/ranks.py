#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ranks.py RANKS COUNT [memory | PROGRAM [ARGUMENT]...]: a job of processes whose kernels wait for each other
is paused COUNT times, at random moments, and every rank verifies its result. With memory, contexts stay on
the GPU: where the processes share one, and pages of registered host memory, their kernels fail
(error 719) after the driver's restore [H200, driver 580.159; one process alone, or other jobs
beside it, do not]. With a PROGRAM they train a network with NCCL, a GPU each; every loss is the native
one, and while the job is paused its GPUs are as empty as before it.
"""
import statistics
import sys
import time

from gpulib import (Job, Training, check, cudaw_ok, equal, figure, gpu_count, gpu_used, jobs, main, seeded, shares_gpu,
                    until)

RANKS, COUNT = int(sys.argv[1]), int(sys.argv[2])
MEMORY = sys.argv[3:] == ["memory"]
TRAINING = [] if MEMORY else sys.argv[3:]
CLIENT_MIB = 4          # of each GPU, for a process that has only initialised CUDA [H200, H100]
RELEASE = ["--release", "memory"] if MEMORY or (TRAINING and shares_gpu(TRAINING[0])) else []


def states():
    return [row["state"] for row in jobs().values() if row["name"] == "ranks"]


def used():
    """MiB in use on each GPU."""
    return [gpu_used(gpu) for gpu in range(gpu_count())]


def emptied(idle):
    """Wait until used() is @idle, except for what the driver has for a launcher that uses CUDA."""
    spare = CLIENT_MIB if len(states()) > RANKS else 0
    seen = []

    def is_idle():
        seen.append(used())
        return all(before <= now <= before + spare for before, now in zip(idle, seen[-1]))
    try:
        until(is_idle, 5, f"{idle} MiB are in use on the GPUs, as before the job")
    finally:
        if seen[-1] != idle:
            print(f"# in use: {seen[-1]} MiB")


def paused_together(job, idle=None):
    """Pause and resume the job COUNT times; @idle: what used() is meanwhile."""
    rng, times, phases = seeded(), [], {"sharing": [], "imports": []}
    # A launcher may use CUDA too.
    job.until(lambda: len(states()) >= RANKS, 60, "all ranks use CUDA")
    for _ in range(COUNT):
        job.wait_steps(job.steps() + 2)
        time.sleep(rng.uniform(0, 0.05))
        start = time.monotonic()
        cudaw_ok("pause", *RELEASE, "ranks")
        times.append((time.monotonic() - start) * 1000)
        equal(set(states()), {"paused"}, "the states after cudaw pause")
        job.check_still(0.05)
        if idle:
            emptied(idle)
        cudaw_ok("resume", "ranks")
        equal(set(states()), {"running"}, "the states after cudaw resume")
        for name, found in phases.items():
            found += [row["resume_phases"].get(name, 0) for row in jobs().values()]
    kind = "_".join(word.strip("-") for word in TRAINING) or "simple"
    figure(f"pause_{RANKS}_{kind}_ranks_median", statistics.median(times), "ms")
    figure(f"pause_{RANKS}_{kind}_ranks_most", max(times), "ms")
    for name, found in phases.items():
        if any(found):
            figure(f"{name}_{RANKS}_{kind}_most", max(found), "ms")


def ranks_pause_together():
    job = Job("ranks", "--ranks", RANKS, "--steps", 100000000, "--step-ms", 1, name="ranks")
    paused_together(job)
    check("every word right" in job.finish(), "not every rank verified its result")


def training_goes_on_as_it_was():
    idle = [] if RELEASE else used()
    training = Training(*TRAINING, "--ranks", RANKS, name="ranks")
    paused_together(training.job, idle)
    training.end_as_natively(f"after {COUNT} pauses")


main((f"{' '.join(TRAINING)} {RANKS} ranks are paused together {COUNT} times".lstrip(),
      training_goes_on_as_it_was if TRAINING else ranks_pause_together))
