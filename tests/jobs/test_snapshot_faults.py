#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Calls to the driver that a snapshot of a running job makes, and its way back, fail once: of each
function the first one and the last; for TSan, which is slow, the last. The job runs on or can be
resumed, its memory is right, and the directory has the snapshot before, or the new one, whole.
"""
import collections
import os
import tempfile

from simlib import SCRATCH, TSAN
from gpulib import Job, check, cudaw, cudaw_ok, equal, main

COUNTS = os.path.join(SCRATCH, "counts")
UNKNOWN = 999
# The calls whose failure must be seen by who asked for the snapshot.
MUST_BE_SAID = ("cuCtxSynchronize", "cuMemcpyDtoHAsync_v2", "cuMemUnmap", "cuMemCreate", "cuMemMap",
                "cuMemSetAccess", "cuMemcpyHtoDAsync_v2", "cuCheckpointProcessRestore",
                "cuCheckpointProcessUnlock")


def holding(*args, **env):
    """Pinned memory would make the number of calls a matter of time."""
    job = Job("hold", *args, env={"CUDAW_HOST_POOL": "0", **env})
    job.wait_line("holding")
    return job


def snapshot(job, path):
    return cudaw("snapshot", "--gpu-only", job.pid, path, timeout=30)


def count_calls(snapshots):
    """How often each function is called until the job has its memory, and by so many snapshots."""
    job = holding("--verify", 0, CUDAW_SIM_COUNT=COUNTS)
    path = os.path.join(tempfile.mkdtemp(dir=SCRATCH), "snapshot")
    for _ in range(snapshots):
        equal(snapshot(job, path).returncode, 0, "the exit code of a snapshot without faults")
    job.tell()
    job.result()
    with open(COUNTS, encoding="ascii") as file:
        return collections.Counter({name: int(count) for name, count in map(str.split, file)})


def one_fault(name, nth):
    """In the second snapshot. True where the failure was said."""
    job = holding(CUDAW_SIM_FAULT=f"{name}:{nth}:{UNKNOWN}")
    path = os.path.join(tempfile.mkdtemp(dir=SCRATCH), "snapshot")
    try:
        equal(snapshot(job, path).returncode, 0, "the exit code of the first snapshot")
        done = snapshot(job, path)
        check(done.returncode in (0, 1), f"exit code {done.returncode} ({done.stderr})")
        cudaw_ok("verify", path)
        check(len(os.listdir(path)) <= 10, f"the directory has {os.listdir(path)}")
        if job.state() != "running":
            check(done.returncode == 1, f"the state is {job.state()}, and nobody was told")
            job.resume()
        equal(snapshot(job, path).returncode, 0, "the exit code of a third snapshot")
        job.tell()
        check("every byte right" in job.result(timeout=20), "the job did not verify its memory")
        return done.returncode == 1
    finally:
        if job in Job.alive:
            print(f"# in call {nth} of {name}: {job.discard().strip()}")


def faults(name, first, last):
    def case():
        said = [one_fault(name, nth) for nth in sorted({last if TSAN else first, last})]
        print(f"# {name}: calls {first} and {last}, {sum(said)} failures said")
        check(any(said) or name not in MUST_BE_SAID, "nobody was told")
    return f"{name} fails", case


one, two = count_calls(1), count_calls(2)
main(*[faults(name, one[name] + 1, two[name]) for name in sorted(two)
       if two[name] > one[name] and not name.startswith("blocked") and not (TSAN and "Process" in name)])
