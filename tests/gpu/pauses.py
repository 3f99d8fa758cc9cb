#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""pauses.py COUNT PROGRAM [ARG]...: paused COUNT times at random moments, the program prints what
the undisturbed native run prints. Every other pause is by signal, the rest by the command. ARGs
hold --steps N.
"""
import statistics
import sys
import time

from gpulib import Job, check, figure, main, same_lines, seeded

COUNT, PROGRAM, ARGS = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
STEPS = int(ARGS[ARGS.index("--steps") + 1])


def pause_at(job, step, moment, by):
    """One pause and resume; returns the job's row afterwards."""
    job.wait_steps(step)
    time.sleep(moment)
    job.pause(by)
    job.check_still()
    job.resume(by)
    return job.status()


def report(rows):
    for what in ("pause_ms", "resume_ms"):
        times = [row[what] for row in rows]
        figure(f"{what}_median", statistics.median(times), "ms")
        figure(f"{what}_most", max(times), "ms")


def same_output_through_pauses():
    rng = seeded()
    native = Job(PROGRAM, *ARGS, mode="native")
    job = Job(PROGRAM, *ARGS)
    # The last fifth of the steps is left free, so that the last pause still finds the job.
    steps = sorted(rng.sample(range(2, STEPS * 4 // 5), COUNT))
    rows = [pause_at(job, step, rng.uniform(0, 0.02), ("signal", "command")[i % 2])
            for i, step in enumerate(steps)]
    same_lines(job.result(), native.result(), f"after {COUNT} pauses")
    check(all(row for row in rows), "the job ended before its last resume was done")
    report(rows)


main((f"{PROGRAM} paused {COUNT} times", same_output_through_pauses))
