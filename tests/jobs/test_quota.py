#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The memory limit of a job: what it sees, and what each way to take memory gets."""
from simlib import MIB  # noqa: F401  (the simulated GPU)
from gpulib import Job, check, equal, main

LIMIT = {"CUDAW_MEM": "64M"}
FULL = "64 MiB, CUDA_ERROR_OUT_OF_MEMORY"
REFUSED = "one more: CUDA_ERROR_OUT_OF_MEMORY"


def memory(job, which=-1):
    """The figures that the program has printed."""
    return [line for line in job.lines if line.startswith("free ")][which]


def answer(job):
    """What one more piece gets."""
    job.make_steps(1)
    return [line for line in job.lines if line.startswith("one more: ")][-1]


def every_way_to_take_memory_ends_there():
    job = Job("quota", env=LIMIT)
    lines = dict(line.split(": ") for line in job.result().splitlines()[:-1])
    for call in ("cuMemAlloc", "cuMemAllocPitch", "cuMemAllocAsync", "cuMemAllocFromPoolAsync"):
        equal(lines[call], FULL, call)
    equal(memory(job), "free 64 of 64 MiB, device 64", "what the program sees at the end")


def a_pause_keeps_it():
    job = Job("quota", "--hold", 7, "--each-line", 1, env=LIMIT)
    job.wait_line("holds 56 MiB")
    equal(memory(job), "free 8 of 64 MiB, device 64", "what the program sees")
    equal(answer(job), "one more: CUDA_SUCCESS", "the eighth piece")
    job.pause()
    job.resume()
    equal(answer(job), "one more: CUDA_SUCCESS", "the eighth piece after a pause")
    job.result()
    equal(memory(job), "free 8 of 64 MiB, device 64", "what the program sees after it")


main(every_way_to_take_memory_ends_there, a_pause_keeps_it)
