#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ordered_probe.py [RUNS]: which endings of streams and pools the driver bears without cudaw, as
ordered.c makes them. For each kind it prints how RUNS runs ended, and in which call one died. After
a run that hangs the kind has no more. The ending by default has to be borne: the GPU suite compares
native runs with runs under cudaw.
"""
import subprocess
import sys

from gpulib import check, job_command, main

RUNS = int(sys.argv[1]) if len(sys.argv) > 1 else 3
LIMIT_S = 30    # a run takes a few seconds
HANGS = "hangs"
WHEN = ("never", "done", "busy")
DEFAULT = (1, 1)
KINDS = (DEFAULT, (0, 0), (2, 0), (0, 2), (2, 2))


def ends(threads, streams, pools):
    args = ("--steps", 150, "--threads", threads, "--streams-end", streams, "--pools-end", pools)
    command, env = job_command("ordered", args, "native")
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, env=env)
    except subprocess.TimeoutExpired:
        return HANGS, ""
    return done.returncode, done.stderr.strip()


def ends_of_runs(threads, streams, pools):
    found = []
    while len(found) < RUNS and (HANGS, "") not in found:
        found.append(ends(threads, streams, pools))
    return found


def the_driver_bears_the_default():
    died = []
    for threads in (1, 3):
        for kind in KINDS:
            found = ends_of_runs(threads, *kind)
            print(f"# {threads} threads, streams end: {WHEN[kind[0]]}, pools end: {WHEN[kind[1]]}: "
                  f"{[status for status, _ in found]}")
            for text in sorted({text for _, text in found if text}):
                print(f"#     {text}")
            died += [threads for status, _ in found if kind == DEFAULT and status]
    check(not died, "a native run with the default endings died, or hangs")


main(the_driver_bears_the_default)
