#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""same.py PROGRAM [ARG]...: the program prints the same natively and in both wrapped ways."""
import sys
import time

from gpulib import MODES, Job, check, jobs, main, same_lines

PROGRAM, ARGS = sys.argv[1], sys.argv[2:]


def watch(wrapped):
    """Wait until the jobs end; returns the most managed memory that each one showed."""
    most = {}
    while not all(job.ended() for job in wrapped):
        for pid, row in jobs().items():
            most[pid] = max(most.get(pid, 0), row["managed"] or 0)
        time.sleep(0.02)
    return most


def same_results():
    """The native run comes first and alone: it fills the caches that the others find full."""
    native = Job(PROGRAM, *ARGS, mode="native").result(timeout=240)
    check("step" in native, "the native run made no step")
    wrapped = {mode: Job(PROGRAM, *ARGS, mode=mode) for mode in ("run", "path")}
    managed = watch(wrapped.values())
    for mode, job in wrapped.items():
        same_lines(job.result(), native, f"by {MODES[mode]}")
        # A wrapped run that cudaw never saw would be one more native run.
        check(managed.get(job.pid, 0) > 0, f"cudaw ps never showed the job by {MODES[mode]}")


main((f"{PROGRAM} natively and wrapped", same_results))
