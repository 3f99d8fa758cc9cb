#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""On a full GPU, memory that the program has freed is there for every call, whoever keeps it."""
import simlib  # noqa: F401 (the simulated driver)
from gpulib import Job, check, equal, main

CALLS = ("cuMemAlloc", "cuMemAllocPitch", "cuMemAllocAsync", "cuMemAllocFromPoolAsync", "cuMemCreate",
         "cuArrayCreate", "cuModuleLoadData", "cuStreamCreate", "cuCtxCreate")


def freed_memory_serves_every_call():
    lines = Job("fidelity", "full").result().splitlines()
    for call in CALLS:
        found = [line for line in lines if line.startswith(f"{call} on a GPU with ")]
        check(found and all(line.endswith(" shown free: CUDA_SUCCESS") for line in found),
              f"{call}: {found or lines}")


def the_default_pool_serves_an_allocation():
    lines = Job("fidelity", "pool_gives_back").result().splitlines()
    equal(lines[0], "3/4 of the memory while the pool keeps half: CUDA_SUCCESS", "the first answer")


main(freed_memory_serves_every_call, the_default_pool_serves_an_allocation)
