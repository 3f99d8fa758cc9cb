#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every call that a pause and a resume make to the driver fails once, each in turn. Whatever fails,
the command says so or the operation is done all the same, asking again helps, and the job's memory
is right in the end.
"""
from faultslib import Faults, holding
from simlib import ask
from gpulib import check, cudaw, equal, main


def pause_and_resume(job):
    """True if a failure was said."""
    said = ask(job, "pause", "paused") + ask(job, "resume", "running")
    return "UNKNOWN" in said or "failed" in said


def locked_after_a_failed_checkpoint():
    """No other call returns in a locked driver: the next thing that the job does is to unlock it."""
    job = holding(CUDAW_RELEASE="all",
                  CUDAW_SIM_FAULT="cuCheckpointProcessCheckpoint:1:999,"
                                  "cuCheckpointProcessUnlock:1:999,cuCheckpointProcessUnlock:2:999")
    job.pause()
    check("the context stays on the GPU" in job.said, f"nobody was told: {job.said!r}")
    done = cudaw("resume", job.pid, timeout=10)
    equal(done.returncode, 1, f"the exit code of cudaw resume ({done.stderr.strip()})")
    check("cuCheckpointProcessUnlock" in done.stderr, f"the call is not named: {done.stderr!r}")
    job.resume()
    job.tell()
    check("every byte right" in job.result(), "the job did not verify its memory")


faults = Faults(pause_and_resume)
main(locked_after_a_failed_checkpoint, *faults.cases(),
     *[faults.memory_runs_out(name) for name in ("cuMemCreate", "cuCheckpointProcessRestore")
       if name in faults.made])
