#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""soak.py CYCLES FULL_CYCLES: 64 threads launch, copy, allocate, free and synchronise through so
many pauses at random moments, every other one by signal: CYCLES with CUDAW_RELEASE=memory, and
FULL_CYCLES of the whole GPU. Every byte is verified by the job; none is lost, and nothing leaks.
"""
import statistics
import sys
import time

from gpulib import Job, check, equal, figure, gpu_used, main, seeded
from leaks import check_no_leak, settled

CYCLES, FULL_CYCLES = int(sys.argv[1]), int(sys.argv[2])
THREADS = 64
SANITIZED = False
# The C library makes arenas for threads that meet, 64 MiB of address space each [H200: the last after 8 of 60
# full pauses]: one part in so many of the cycles warms up.
WARM_PART = 3
# MiB on the GPU beyond the first few cycles: one granule of 2 MiB kept in each of 20 is seen.
GPU_SLACK = 32
# A pool of host memory is 64 MiB at least: leaked in one cycle of four it is seen.
SPACE_SLACK = 16
# What is saved varies, and the pool grows by 64 MiB when it is more than ever; the rest is malloc's.
MEMORY_SLACK = 64 + 16
# What the driver keeps of the 32 streams of a pause [H200: 10 MiB], of which no cycle adds any.
STREAMS_MIB = 16


def held(job, before=None):
    """What the paused job holds, and what is in use on the GPU."""
    found = settled(job.pid, before and before[0])
    return found, gpu_used()


def cycle(job, rng, number):
    by = ("signal", "command")[number % 2]
    time.sleep(rng.uniform(0, 0.02))
    job.pause(by)
    if number % 10 == 0:
        job.check_still(0.1)
    return by


def report(rows):
    for what in ("pause_ms", "resume_ms"):
        figure(f"{what}_median", statistics.median(row[what] for row in rows), "ms")


def soak(cycles, release):
    rng = seeded()
    job = Job("soak", "--threads", THREADS, "--slack-mib", STREAMS_MIB, "--steps", 100000000,
              env={"CUDAW_RELEASE": release})
    job.wait_steps(5)
    warm, rows = max(cycles // WARM_PART, 3), []
    for number in range(cycles):
        by = cycle(job, rng, number)
        if number == warm:
            before = held(job)
        if number == cycles - 1:
            after = held(job, before)
        job.resume(by)
        rows.append(job.status())
    job.wait_steps(job.steps() + 5)
    check("every byte right" in job.finish(), "the job did not verify its memory")
    equal([line for line in job.stderr().splitlines() if line.startswith("cudaw[")], [],
          "what cudaw says on stderr")
    check_no_leak(before[0], after[0], SPACE_SLACK * (cycles - warm), MEMORY_SLACK,
                  counted_by_us=not SANITIZED)
    check(after[1] <= before[1] + GPU_SLACK,
          f"{before[1]} MiB in use on the GPU while paused became {after[1]}")
    report(rows)


def only_the_memory_is_released():
    soak(CYCLES, "memory")


def the_whole_gpu_is_released():
    soak(FULL_CYCLES, "all")


main(only_the_memory_is_released, the_whole_gpu_is_released)
