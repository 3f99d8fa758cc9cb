#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""same.py PROGRAM [ARG]...: the program prints the same natively and in both wrapped ways."""
import sys

from gpulib import MODES, Job, check, jobs, main, same_lines, until

PROGRAM, ARGS = sys.argv[1], sys.argv[2:]


def watch(wrapped):
    """Wait until each job has shown managed memory in `cudaw ps`, or has ended; returns the ids of
    the former.
    """
    shown = set()

    def watched():
        shown.update(pid for pid, row in jobs().items() if row["carried"])
        return all(job.pid in shown or job.ended() for job in wrapped)
    until(watched, 240, "the jobs are in cudaw ps, or end")
    return shown


def same_results():
    """The native run comes first and alone: it fills the caches that the others find full."""
    native = Job(PROGRAM, *ARGS, mode="native").result(timeout=240)
    check("step" in native, "the native run made no step")
    wrapped = {mode: Job(PROGRAM, *ARGS, mode=mode) for mode in ("run", "path")}
    shown = watch(wrapped.values())
    for mode, job in wrapped.items():
        same_lines(job.result(), native, f"by {MODES[mode]}")
        # A wrapped run that cudaw never saw would be one more native run.
        check(job.pid in shown, f"cudaw ps never showed the job by {MODES[mode]}")


main((f"{PROGRAM} natively and wrapped", same_results))
