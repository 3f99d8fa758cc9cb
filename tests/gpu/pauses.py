#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""pauses.py COUNT PROGRAM [ARG]...: paused COUNT times at random moments, the program prints what
the undisturbed native run prints. Every other pause is by signal, the rest by the command. ARGs
hold --steps N.
"""
import statistics
import sys

from gpulib import Job, check, figure, main, pause_at_random, same_lines

COUNT, PROGRAM, ARGS = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
STEPS = int(ARGS[ARGS.index("--steps") + 1])


def report(rows):
    for what in ("pause_ms", "resume_ms"):
        times = [row[what] for row in rows]
        figure(f"{what}_median", statistics.median(times), "ms")
        figure(f"{what}_most", max(times), "ms")


def same_output_through_pauses():
    native = Job(PROGRAM, *ARGS, mode="native")
    job = Job(PROGRAM, *ARGS)
    rows = pause_at_random(job, COUNT, STEPS)
    same_lines(job.result(), native.result(), f"after {COUNT} pauses")
    check(all(row for row in rows), "the job ended before its last resume was done")
    report(rows)


main((f"{PROGRAM} paused {COUNT} times", same_output_through_pauses))
