#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""managed_probe.py: whether managed memory that its process has prefetched to the host leaves the GPU.
In each state of that process, which runs without cudaw: what nvidia-smi and cuMemGetInfo say, and how
much another process gets by cuMemAlloc. Figures, and no judgement.
"""
import time

from gpulib import Job, figure, gpu_used, hog, idle_gpu_used, main, until

MIB = 8192
STATES = ("allocated", "on the GPU", "on the host", "freed")


def what_another_process_gets():
    idle = idle_gpu_used()
    whole, alone = hog()
    whole.discard()
    until(lambda: gpu_used() <= idle, 10, "the first hog's memory is free again")
    print(f"# idle: {idle} MiB in use; another process gets {alone >> 20} MiB")
    job = Job("managed_probe", "--mib", MIB, mode="native")
    for number, state in enumerate(STATES, 1):
        job.until(lambda: len(job.lines) == number, 120, state)
        used = gpu_used()
        begin = time.monotonic()
        other, got = hog()
        seconds, beside = time.monotonic() - begin, gpu_used()
        other.discard()
        until(lambda: gpu_used() <= max(used, idle) + 64, 20, "the hog's memory is free again")
        print(f"# {job.lines[-1]}: nvidia-smi {used} MiB in use; another process gets {got >> 20} MiB "
              f"({(alone - got) >> 20} less than alone) in {seconds:.2f} s, then {beside} MiB in use; {gpu_used()} MiB after it")
        figure(f"kept_{state}", (alone - got) >> 20, "MiB")
        job.tell()
    job.result()
    print(f"# {job.stderr().strip()}")


main(what_another_process_gets)
