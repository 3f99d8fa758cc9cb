#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every call that a pause and a resume make to the driver fails once, each in turn. Whatever fails,
the command says so or the operation is done all the same, asking again helps, and the job's memory
is right in the end. Checksums are on, so that their calls fail too, but for TSan, which is slow.
"""
import collections
import os

from simlib import SCRATCH, TSAN, ask, each
from gpulib import Job, check, cudaw, equal, main

COUNTS = os.path.join(SCRATCH, "counts")
UNKNOWN, OUT_OF_MEMORY = 999, 2
# The calls whose failure must be seen by who asked for the pause or the resume.
MUST_BE_SAID = ("cuCtxSynchronize", "cuMemcpyDtoHAsync_v2", "cuMemUnmap", "cuMemCreate", "cuMemMap",
                "cuMemSetAccess", "cuMemcpyHtoDAsync_v2", "cuCheckpointProcessLock",
                "cuCheckpointProcessCheckpoint", "cuCheckpointProcessRestore",
                "cuCheckpointProcessUnlock")


def holding(*args, **env):
    job = Job("hold", *args, env={"CUDAW_VERIFY": "0" if TSAN else "1", **env})
    job.wait_line("holding")
    return job


def count_calls(paused):
    """How often each function is called until the job has its memory, or until after a pause."""
    job = holding("--verify", 0, CUDAW_SIM_COUNT=COUNTS)
    if paused:
        job.pause()
        job.resume()
    job.tell()
    job.result()
    with open(COUNTS, encoding="ascii") as file:
        return collections.Counter({name: int(count) for name, count in map(str.split, file)})


def one_fault(name, nth, error):
    """True where the failure was said."""
    job = holding(CUDAW_SIM_FAULT=f"{name}:{nth}:{error}")
    try:
        said = ask(job, "pause", "paused") + ask(job, "resume", "running")
        job.tell()
        check("every byte right" in job.result(timeout=20), "the job did not verify its memory")
        return "UNKNOWN" in said or "failed" in said
    finally:
        if job in Job.alive:
            print(f"# in call {nth} of {name}, error {error}: {job.discard().strip()}")


def faults(name, first, count):
    def case():
        said = [one_fault(name, first + i, UNKNOWN) for i in each(count)]
        print(f"# {name}: {count} calls, {sum(said)} failures said")
        check(any(said) or name not in MUST_BE_SAID, "nobody was told")
    return f"{name} fails", case


def memory_runs_out(name, first, count):
    """A resume waits for memory and tries again; it does not fail."""
    def case():
        for i in each(count):
            one_fault(name, first + i, OUT_OF_MEMORY)
    return f"{name} finds no memory", case


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


before, after = count_calls(False), count_calls(True)
made = {name: after[name] - before[name] for name in sorted(after)
        if after[name] > before[name] and not name.startswith("blocked")}
main(locked_after_a_failed_checkpoint,
     *[faults(name, before[name], count) for name, count in made.items()],
     *[memory_runs_out(name, before[name], made[name])
       for name in ("cuMemCreate", "cuCheckpointProcessRestore") if name in made])
