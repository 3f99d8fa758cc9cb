#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every kind of memory through pauses, in both ways of release: the program prints what the
undisturbed native run prints.
"""
import functools

from gpulib import Job, check, main, pause_at_random, same_lines

STEPS, STEP_MS, STILL = 150, 10, 0.2
KINDS = ("async", "pool", "vmm", "managed", "array", "mipmap", "texture", "global", "heap",
         "printf", "graph_mem", "graph_replay", "host", "ptds", "priority", "external")
SHARED = ("ipc_out", "ipc_in", "vmm_out", "vmm_in")


def environment(kind, release):
    """Legacy IPC takes the driver's own allocations."""
    return {"CUDAW_RELEASE": release,
            "CUDAW_ADDRESSING": "native" if kind.startswith("ipc") else "mapped"}


def arguments(kind):
    return "--kind", kind, "--steps", STEPS, "--step-ms", STEP_MS


@functools.cache
def native(kind):
    return Job("memory_kinds", *arguments(kind), mode="native").result()


def carried(kind, release):
    def case():
        expected = native(kind)
        job = Job("memory_kinds", *arguments(kind), env=environment(kind, release))
        rows = pause_at_random(job, 3, STEPS, STILL)
        check(all(rows), "the job ended before its last resume was done")
        same_lines(job.result(), expected, "after 3 pauses")
    return f"{kind}, {release}", case


main(*[carried(kind, release) for kind in KINDS for release in ("all", "memory")],
     *[carried(kind, "memory") for kind in SHARED])
