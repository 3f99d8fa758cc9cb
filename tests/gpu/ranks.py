#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ranks.py RANKS COUNT: a job of processes whose kernels wait for each other is paused COUNT times,
at random moments, and every rank verifies its result.
"""
import statistics
import sys
import time

from gpulib import Job, cudaw_ok, equal, figure, jobs, main, seeded

RANKS, COUNT = int(sys.argv[1]), int(sys.argv[2])


def states():
    return [row["state"] for row in jobs().values() if row["name"] == "ranks"]


def ranks_pause_together():
    rng = seeded()
    job = Job("ranks", "--ranks", RANKS, "--steps", 100000000, "--step-ms", 1, name="ranks")
    job.until(lambda: len(states()) == RANKS, 60, "all ranks use CUDA")
    times = []
    for _ in range(COUNT):
        job.wait_steps(job.steps() + 2)
        time.sleep(rng.uniform(0, 0.05))
        start = time.monotonic()
        cudaw_ok("pause", "ranks")
        times.append((time.monotonic() - start) * 1000)
        equal(states(), ["paused"] * RANKS, "the states after cudaw pause")
        job.check_still(0.05)
        cudaw_ok("resume", "ranks")
        equal(states(), ["running"] * RANKS, "the states after cudaw resume")
    equal("every word right" in job.finish(), True, "that every rank verified its result")
    figure(f"pause_{RANKS}_ranks_median", statistics.median(times), "ms")
    figure(f"pause_{RANKS}_ranks_most", max(times), "ms")


main((f"{RANKS} ranks are paused together {COUNT} times", ranks_pause_together))
