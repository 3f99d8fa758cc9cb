# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests in which each driver call of an operation fails once. Checksums are on, so that their
calls fail too, except under TSan, which is slow. The job has a slab of small buffers and one buffer of
2 MiB: for more and larger ones the same calls are made again.
"""
import collections
import os

from simlib import SCRATCH, TSAN, each
from gpulib import Job, check

COUNTS = os.path.join(SCRATCH, "counts")
UNKNOWN, OUT_OF_MEMORY = 999, 2
# The calls whose failure must be seen by whoever asked for the operation.
MUST_BE_SAID = ("cuCtxSynchronize", "cuMemcpyDtoHAsync_v2", "cuMemUnmap", "cuMemCreate", "cuMemMap",
                "cuMemSetAccess", "cuMemcpyHtoDAsync_v2", "cuCheckpointProcessLock",
                "cuCheckpointProcessCheckpoint", "cuCheckpointProcessRestore",
                "cuCheckpointProcessUnlock")


def holding(*args, **env):
    job = Job("hold", "--buffers", 4, *args, env={"CUDAW_VERIFY": "0" if TSAN else "1", **env})
    job.wait_line("holding")
    return job


class Faults:
    """The faults of @operation, a function of the job that returns whether a failure was said."""

    def __init__(self, operation):
        self.operation = operation
        self.before = self.count_calls(lambda job: None)
        after = self.count_calls(operation)
        self.made = {name: after[name] - self.before[name] for name in sorted(after)
                     if after[name] > self.before[name] and not name.startswith("blocked")}

    @staticmethod
    def count_calls(operation):
        """How often each function is called until the job has its memory, or until after the operation."""
        job = holding("--verify", 0, CUDAW_SIM_COUNT=COUNTS)
        operation(job)
        job.tell()
        job.result()
        with open(COUNTS, encoding="ascii") as file:
            return collections.Counter({name: int(count) for name, count in map(str.split, file)})

    def one(self, name, number, error):
        """Call @number of those that the operation makes fails. True if the failure was said."""
        nth = self.before[name] + number
        job = holding(CUDAW_SIM_FAULT=f"{name}:{nth}:{error}")
        try:
            said = self.operation(job)
            job.tell()
            check("every byte right" in job.result(timeout=20), "the job did not verify its memory")
            return said
        finally:
            if job in Job.alive:
                print(f"# in call {nth} of {name}, error {error}: {job.discard().strip()}")

    def of(self, name, count):
        def case():
            said = [self.one(name, i, UNKNOWN) for i in each(count)]
            print(f"# {name}: {count} calls, {sum(said)} failures said")
            check(any(said) or name not in MUST_BE_SAID, "nobody was told")
        return f"{name} fails", case

    def cases(self):
        """A case for each function."""
        return [self.of(name, count) for name, count in self.made.items()]

    def memory_runs_out(self, name, waits=False):
        """The operation waits for memory and tries again; with @waits, nobody is told of a failure."""
        def case():
            for i in each(self.made[name]):
                said = self.one(name, i, OUT_OF_MEMORY)
                check(not (waits and said), "the operation has failed")
        return f"{name} finds no memory", case
