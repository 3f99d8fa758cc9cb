#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The memory limit of a job: what it sees, and what each way to take memory gets."""
from simlib import MIB  # noqa: F401  (the simulated GPU)
from gpulib import Job, check, equal, main

LIMIT = {"CUDAW_MEM": "64M"}
FULL = "64 MiB, CUDA_ERROR_OUT_OF_MEMORY"
NOT_FULL = "512 MiB, CUDA_SUCCESS"
REFUSED = "one more: CUDA_ERROR_OUT_OF_MEMORY"


def memory(job, which=-1):
    """The figures that the program has printed."""
    return [line for line in job.lines if line.startswith("free ")][which]


def answer(job):
    """What one more piece gets."""
    job.make_steps(1)
    return [line for line in job.lines if line.startswith("one more: ")][-1]


def ways_end(env=None, unlimited=()):
    job = Job("quota", env={**LIMIT, **(env or {})})
    lines = dict(line.split(": ") for line in job.result().splitlines()[:-1])
    equal(len(lines), 8, "the number of ways")
    for call, answered in lines.items():
        equal(answered, NOT_FULL if call in unlimited else FULL, call)
    equal(memory(job), "free 64 of 64 MiB, device 64", "what the program sees at the end")


def every_way_to_take_memory_ends_there():
    ways_end()


def so_does_memory_that_is_left_to_the_driver():
    ways_end({"CUDAW_TO_DRIVER": "memory"})


def so_does_memory_with_translated_addresses():
    ways_end({"CUDAW_ADDRESSING": "translated"})


def host_memory_is_not_limited():
    ways_end({"CUDAW_MANAGED": "host"}, unlimited=["cuMemAllocManaged"])


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


main(every_way_to_take_memory_ends_there, so_does_memory_that_is_left_to_the_driver,
     so_does_memory_with_translated_addresses, host_memory_is_not_limited, a_pause_keeps_it)
