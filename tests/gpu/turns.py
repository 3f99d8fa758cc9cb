#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""turns.py [COUNT]: two jobs that do not fit on the GPU beside each other take turns, as cudawd decides.
They print what they print natively after at least COUNT turns. Another process holds the rest of the
GPU, so that small jobs do not fit.
"""
import json
import os
import re
import statistics
import subprocess
import sys
import time

import gpulib
from gpulib import (BUILD, RUNTIME_DIR, Job, Skip, after_case, base_environment, check, cudaw, cudaw_ok,
                    equal, figure, hog, main, same_lines)
from harness import ends_with_us, until

COUNT = int(sys.argv[1]) if len(sys.argv) > 1 else 20
CUDAWD = os.path.join(BUILD, "bin", "cudawd")
MIB, GIB = 1 << 20, 1 << 30
daemons = []


def start_daemon(quantum="0.3"):
    os.makedirs(RUNTIME_DIR, mode=0o700, exist_ok=True)
    daemons.append(ends_with_us(subprocess.Popen(
        [CUDAWD, "--quantum", quantum, "--residence", "0.2"], env=base_environment())))
    until(lambda: cudaw("share").returncode == 0, 10, "cudawd answers")


def end_daemons(_good):
    while daemons:
        daemon = daemons.pop()
        daemon.kill()
        daemon.wait()


after_case.append(end_daemons)


def members():
    return {row["pid"]: row for row in json.loads(cudaw_ok("share", "--json"))["members"]}


def started(name, program, *args):
    return Job(program, *args, name=name, env={"CUDAW_SHARE": "user", "CUDAW_RELEASE": "memory"})


def leave(mib):
    """Take the GPU's memory but for @mib."""
    free = int(gpulib.smi("gpu=memory.free")[0][0])
    return hog("--mib", free - mib)[0]


def turns():
    return sum(row["turns"] for row in members().values())


def two(program, *args):
    first = started("first", program, *args)
    until(lambda: first.pid in members(), 60, "the first has joined")
    return first, started("second", program, *args)


def taking_turns(free_mib, program, *args):
    def case():
        native = Job(program, *args, mode="native").result(100)
        other = leave(free_mib)
        start_daemon()
        both, most = two(program, *args), [0]

        def ended():
            most.append(max(most[-1], turns()))
            return any(job.ended() for job in both)
        until(ended, 120, "one of them makes all its steps")
        for job in both:
            same_lines(job.result(120), native, "of a job that takes turns")
        figure(f"turns_{os.path.splitext(program)[0]}", most[-1], "")
        check(most[-1] >= COUNT, f"they had {most[-1]} turns, not {COUNT}")
        other.discard()
    return f"{program} {' '.join(map(str, args))}", case


def through_kills():
    """Of the daemon, while they take turns, and then of one of the two."""
    other = leave(4 * 1024)
    start_daemon()
    first, second = two("counter", "--mib", 2 * 1024, "--allocs", 16, "--steps", 1000000, "--step-ms", 5)
    for _ in range(3):
        until(lambda: turns() >= 3, 60, "three turns")
        end_daemons(True)
        start_daemon()
        until(lambda: len(members()) == 2, 30, "both have joined the new daemon")
        steps = [job.steps() for job in (first, second)]
        until(lambda: all(job.steps() > before for job, before in zip((first, second), steps)), 30,
              "both make steps")
    second.discard()
    first.wait_steps(first.steps() + 50)
    check("every word right" in first.finish(timeout=60), "the first did not verify its memory")
    other.discard()


def rate(jobs, until_true):
    """Steps per second that the jobs make together."""
    start, steps = time.monotonic(), sum(job.steps() for job in jobs)
    until_true()
    return (sum(job.steps() for job in jobs) - steps) / (time.monotonic() - start)


def large_jobs():
    """Of 80 GiB each: how long a turn takes to begin, and what the turns leave of one job's speed alone."""
    if int(gpulib.smi("gpu=memory.total")[0][0]) < 120 * 1024:
        raise Skip("a GPU of 120 GiB needed")
    start_daemon("10")
    arguments = ("counter", "--mib", 80 * 1024, "--allocs", 64, "--steps", 1000000, "--step-ms", 20)
    first = started("first", *arguments)
    first.wait_steps(2, timeout=120)
    alone = rate([first], lambda: time.sleep(10))
    second = started("second", *arguments)
    until(lambda: turns() >= 3, 120, "three turns")
    together = rate([first, second], lambda: until(lambda: turns() >= 9, 120, "nine turns"))
    times = [float(re.search(r"after ([0-9.]+) ms", line).group(1))
             for line in cudaw_ok("events").splitlines() if "back after" in line and " ms" in line]
    figure("turn_begins_after", statistics.median(times), "ms")
    figure("steps_alone", alone, "1/s")
    figure("steps_in_turns", together, "1/s")
    second.discard()
    check("every word right" in first.finish(timeout=240), "a job did not verify its memory")


main(taking_turns(5 * 1024, "finetune.py", "--gib", 2, "--steps", 2000), through_kills, large_jobs)
