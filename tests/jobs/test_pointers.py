#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Attributes of pointers: the calls that synchronise say the same natively and under cudaw, and
through pauses.
"""
import simlib  # noqa: F401
from gpulib import Job, equal, main

CALLS = 12      # of sync_memops.c


def said(mode, **env):
    return Job("sync_memops", "--plain", 1, "--hold-ms", 100, "--steps", CALLS, mode=mode,
               env=env).result().splitlines()


def marked_memory_is_waited_for():
    native = said("native")
    equal(sum("marked memory waits" in line for line in native), CALLS, "the native waits")
    equal(sum("plain memory returns" in line for line in native), CALLS - 1,
          "the native calls that do not wait, all but the copy from pageable memory")
    for addressing in ("mapped", "translated"):
        equal(said("run", CUDAW_ADDRESSING=addressing), native, f"with {addressing} addresses")


def the_attribute_outlives_pauses():
    job = Job("sync_memops", "--hold-ms", 20, "--steps", 1000000)
    for _ in range(2):
        job.wait_steps(job.steps() + 2)
        job.pause()
        job.check_still()
        job.resume()
    job.wait_steps(4 * CALLS)
    lines = job.finish().splitlines()
    equal(sum("marked memory waits" in line for line in lines), job.steps(), "the calls that wait")
    equal({line for line in lines if line.startswith("marked:")}, {"marked: 1 1, plain: 0 0"},
          "what is read back")
    equal(lines[-2:], ["in its place: 0, set once more: 0", "after the free: 1"],
          "after the allocation is freed")


main(marked_memory_is_waited_for, the_attribute_outlives_pauses)
