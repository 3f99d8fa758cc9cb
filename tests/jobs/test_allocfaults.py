#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Everything that a pause and a resume ask of the system fails once, each in turn: memory, mappings,
threads, descriptors, child processes, and the spill file. Whatever fails, the command says so or the operation is
done all the same, asking again helps, and the job's memory is right in the end. What fails is
chosen by tests/preload/failalloc.c.
"""
import mmap
import os
import struct

from simlib import SANITIZED, SCRATCH, TSAN, ask, each, unsanitized
from gpulib import BUILD, Failure, Group, Job, check, equal, faces, main

LIBRARY = os.path.join(BUILD, "tests", "preload", "failalloc.so")
HEAD, CALL = struct.Struct("=4I"), struct.Struct("=28sI")   # struct control
RIGHT = "hold: every byte right"
# Dozens, the control groups' files, which are read alike in every pause.
ONLY_IN_LATER_PAUSES = "fdopen"
OF_THE_SPILL_FILE = ("openat", "fallocate", "pwrite", "pread")
# The process has about 20 MiB, and a pause leaves 256 MiB alone: half of what it saves goes to disk.
SPILLING_MIB = 288


class Control:
    """What the job and the test share."""

    def __init__(self):
        path = os.path.join(SCRATCH, "failalloc")
        with open(path, "wb") as file:
            file.write(bytes(mmap.PAGESIZE))
        with open(path, "r+b") as file:
            self.shared = mmap.mmap(file.fileno(), mmap.PAGESIZE)
        self.env = {"LD_PRELOAD": LIBRARY, "FAILALLOC": path,
                    "FAILALLOC_LIBRARY": os.path.join(faces(), "libcuda.so.1")}
        if SANITIZED:   # ours comes before the runtime, and calls on to it
            self.env["ASAN_OPTIONS"] = "verify_asan_link_order=0"

    def counts(self):
        """How often each call was made since it was armed, in the library's order."""
        rows = CALL.iter_unpack(self.shared[HEAD.size:HEAD.size + 40 * CALL.size])
        return {name.rstrip(b"\0").decode(): count for name, count in rows if name.strip(b"\0")}

    def arm(self, call, nth):
        number = list(self.counts()).index(call)
        for i in range(len(self.counts())):
            struct.pack_into("=I", self.shared, HEAD.size + (i + 1) * CALL.size - 4, 0)
        HEAD.pack_into(self.shared, 0, 1, number, nth, 0)

    def disarm(self):
        """Returns whether the call failed."""
        struct.pack_into("=I", self.shared, 0, 0)
        return HEAD.unpack_from(self.shared)[3] > 0


def holding(release, group=None):
    """A job, in the control group @group."""
    control = Control()
    env = {**control.env, "CUDAW_RELEASE": release}
    args = ("--until-eof", 1)
    if group:
        env["CUDAW_SPILL_DIR"] = SCRATCH
        job = Job(*group.command("hold", *args), env=env)
    else:
        job = Job("hold", *args, env=env)
    job.wait_line("holding")
    check(control.counts(), "failalloc.so does not find the driver face in the job")
    return job, control


def verify(job):
    rounds = job.lines.count(RIGHT)
    job.tell()
    job.until(lambda: job.lines.count(RIGHT) > rounds, 20, "the job has verified its memory")


def one_fault(job, control, call, nth):
    """Pause and resume with that fault; true where the call was made, and failed."""
    def works():
        control.disarm()
        verify(job)

    control.arm(call, nth)
    ask(job, "pause", "paused", works)
    ask(job, "resume", "running")
    hit = control.disarm()
    verify(job)
    return hit


def end(job):
    job.process.stdin.close()
    job.result(20)


def count_calls(release, pauses, group=None):
    """What the last of so many pauses, with its resume, calls how often."""
    job, control = holding(release, group)
    for _ in range(pauses):
        equal(one_fault(job, control, "malloc", 0), False, "that a call failed")
        counts = control.counts()
    end(job)
    return counts


def fail_in_first_pauses(call, count, release, group=None):
    """Each fault meets a process that was not paused before."""
    hits = 0
    for nth in each(count):
        job, control = holding(release, group)
        try:
            hits += one_fault(job, control, call, nth)
            end(job)
        finally:
            if job in Job.alive:
                print(f"# in call {nth} of {call}: {job.discard().strip()}")
    print(f"# {call}: {count} calls, {hits} failed")
    check(hits, f"no {call} failed")


def first_pauses(call, count, release):
    return (f"{call} fails in a first pause, CUDAW_RELEASE={release}",
            lambda: fail_in_first_pauses(call, count, release))


def the_spill_file_fails():
    with Group(SPILLING_MIB << 20) as group:
        counts = count_calls("memory", 1, group)
        for call in OF_THE_SPILL_FILE:
            fail_in_first_pauses(call, counts[call], "memory", group)


def later_pauses(counts, release):
    """All faults, one after the other, in one process that has been paused before."""
    def case():
        faults = [(call, nth) for call, count in counts.items() for nth in each(count)]
        job, control = holding(release)
        ask(job, "pause", "paused")
        ask(job, "resume", "running")
        hits = 0
        for call, nth in faults:
            try:
                hits += one_fault(job, control, call, nth)
            except Failure as failure:
                raise Failure(f"call {nth} of {call}: {failure}") from None
        end(job)
        print(f"# {len(faults)} calls, {hits} failed")
        check(hits > len(faults) / 2, "too few failed")
    return f"each call fails in a later pause, CUDAW_RELEASE={release}", case


def cases(release):
    for call, count in count_calls(release, 1).items():
        if count and call != ONLY_IN_LATER_PAUSES:
            yield first_pauses(call, count, release)
    yield later_pauses(count_calls(release, 2), release)


main(*[case for release in (["memory"] if TSAN else ["all", "memory"]) for case in cases(release)],
     unsanitized(the_spill_file_fails))
