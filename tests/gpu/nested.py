#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pointers that lie in GPU memory: mapped addressing carries them, translated addressing says that
it cannot.
"""
from gpulib import Job, check, main, same_lines

BATCHED = ("cublas_batched", "--arrays", 1, "--steps", 5)


def mapped_addresses_reach_them():
    native = Job(*BATCHED, mode="native").result()
    same_lines(Job(*BATCHED).result(), native, "under cudaw")


def translated_addresses_are_reported():
    """What becomes of the program is not ours to say: its kernels follow wrong pointers."""
    job = Job(*BATCHED, env={"CUDAW_ADDRESSING": "translated"})
    job.wait_end()
    said = [line for line in job.discard().splitlines() if line.startswith("cudaw[")]
    check(any("looks like a pointer to GPU memory" in line for line in said), f"cudaw says {said}")


main(mapped_addresses_reach_them, translated_addresses_are_reported)
