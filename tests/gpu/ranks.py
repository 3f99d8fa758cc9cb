#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ranks.py RANKS COUNT [memory|nccl]: a job of processes whose kernels wait for each other is paused
COUNT times, at random moments, and every rank verifies its result. With memory, contexts stay on
the GPU: where the processes share one, and pages of registered host memory, their kernels fail
(error 719) after the driver's restore [H200, driver 580.159; one process alone, or other jobs
beside it, do not]. With nccl they train a network, a GPU each, and every loss is the native one.
"""
import statistics
import sys
import time

from gpulib import Job, check, cudaw_ok, equal, figure, jobs, main, same_lines, seeded, shares_gpu

RANKS, COUNT = int(sys.argv[1]), int(sys.argv[2])
NCCL = sys.argv[3:] == ["nccl"]
TRAINING = ("nccl_ranks.py", "--ranks", RANKS, "--steps", 100 * COUNT, "--step-ms", 5)
RELEASE = ["--release", "memory"] if sys.argv[3:] == ["memory"] or shares_gpu(TRAINING[0]) else []


def states():
    return [row["state"] for row in jobs().values() if row["name"] == "ranks"]


def paused_together(job):
    """Pause and resume the job COUNT times."""
    rng, times = seeded(), []
    job.until(lambda: len(states()) == RANKS, 60, "all ranks use CUDA")
    for _ in range(COUNT):
        job.wait_steps(job.steps() + 2)
        time.sleep(rng.uniform(0, 0.05))
        start = time.monotonic()
        cudaw_ok("pause", *RELEASE, "ranks")
        times.append((time.monotonic() - start) * 1000)
        equal(states(), ["paused"] * RANKS, "the states after cudaw pause")
        job.check_still(0.05)
        cudaw_ok("resume", "ranks")
        equal(states(), ["running"] * RANKS, "the states after cudaw resume")
    kind = "nccl" if NCCL else "simple"
    figure(f"pause_{RANKS}_{kind}_ranks_median", statistics.median(times), "ms")
    figure(f"pause_{RANKS}_{kind}_ranks_most", max(times), "ms")


def ranks_pause_together():
    job = Job("ranks", "--ranks", RANKS, "--steps", 100000000, "--step-ms", 1, name="ranks")
    paused_together(job)
    check("every word right" in job.finish(), "not every rank verified its result")


def training_goes_on_as_it_was():
    native = Job(*TRAINING, mode="native").result()
    job = Job(*TRAINING, name="ranks")
    paused_together(job)
    same_lines(job.result(), native, f"after {COUNT} pauses")


main((f"{RANKS} ranks are paused together {COUNT} times",
      training_goes_on_as_it_was if NCCL else ranks_pause_together))
