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
import sys
import time

import gpulib
from gpulib import Job, Skip, check, cudaw_ok, equal, figure, main, same_lines
from daemons import TURNS, end_daemons, leave, members, start_daemon, started, taking_turns, turns, two
from harness import until

COUNT = int(sys.argv[1]) if len(sys.argv) > 1 else 20
MIB, GIB = 1 << 20, 1 << 30
CONTEXT_MIB = 530


def through_kills():
    """Of the daemon, while they take turns, and then of one of the two."""
    other = leave(4 * 1024)
    start_daemon(*TURNS)
    first, second = two("counter", "--mib", 2 * 1024, "--allocs", 16, "--steps", 1000000, "--step-ms", 5)
    for _ in range(3):
        until(lambda: turns() >= 3, 60, "three turns")
        end_daemons(True)
        start_daemon(*TURNS)
        until(lambda: len(members()) == 2, 30, "both have joined the new daemon")
        steps = [job.steps() for job in (first, second)]
        until(lambda: all(job.steps() > before for job, before in zip((first, second), steps)), 30,
              "both make steps")
    second.discard()
    first.wait_steps(first.steps() + 50)
    check("every word right" in first.finish(timeout=60), "the first did not verify its memory")
    other.discard()


def size_beside_others():
    """MiB of a job that fits, with its context, but not beside the members that are there."""
    turns = json.loads(cudaw_ok("turns", "--json"))
    total = sum(gpu["total"] for row in turns["members"] for gpu in row["gpu"])
    return (turns["gpus"][0]["capacity"] - total // 2) // MIB - 700


def together(free_mib, program, *args):
    """A job of two processes and one of one, which take turns: the two are out, and run, together. A job
    that holds the rest of the GPU leaves @free_mib."""
    def case():
        if program.startswith("nccl_") and "TEST_NCCL" not in os.environ:
            raise Skip("TEST_NCCL names no NCCL that lets ranks share a GPU")
        native = Job(program, *args, mode="native").result(120)
        other = leave(free_mib)
        start_daemon(*TURNS)
        many = started("many", program, *args)
        until(lambda: len(members()) == 2, 60, "both processes have joined")
        time.sleep(2)       # they allocate
        one = started("one", "counter", "--mib", size_beside_others(), "--allocs", 16, "--steps", 1000000,
                      "--step-ms", 5)
        most = [0]

        def ended():
            most.append(max(row["turns"] for row in [{"turns": 0}, *members().values()]
                            if row.get("name") != "one"))
            return many.ended()
        many.process.stdin.close()
        until(ended, 200, "the job of two processes makes all its steps")
        same_lines(many.result(60), native, "of a job of two processes that takes turns")
        figure(f"turns_together_{os.path.splitext(program)[0]}", max(most), "")
        check(max(most) >= COUNT, f"it had {max(most)} turns, not {COUNT}")
        one.wait_steps(one.steps() + 20, timeout=60)
        check("every word right" in one.finish(timeout=60), "the other did not verify its memory")
        other.discard()
    return f"{program} {' '.join(map(str, args))}", case


def rate(jobs, until_true):
    """Steps per second that the jobs make together."""
    start, steps = time.monotonic(), sum(job.steps() for job in jobs)
    until_true()
    return (sum(job.steps() for job in jobs) - steps) / (time.monotonic() - start)


def large_jobs():
    """Of 80 GiB each: how long a turn takes to begin, and what the turns leave of one job's speed alone."""
    if int(gpulib.smi("gpu=memory.total")[0][0]) < 120 * 1024:
        raise Skip("a GPU of 120 GiB needed")
    start_daemon("--quantum", "10")
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


def a_context_makes_room():
    """One has filled the GPU, and fits only without the context of the other one."""
    other = leave(6 * 1024)
    size = int(gpulib.smi("gpu=memory.free")[0][0]) - CONTEXT_MIB - CONTEXT_MIB // 4
    start_daemon(*TURNS, "--margin", "16M", "--context-after", "1")
    big = started("big", "counter", "--mib", size, "--allocs", 16, "--verify", 1, "--steps", 1000000, "--step-ms", 5)
    big.wait_steps(3)
    cudaw_ok("pause", big.pid)
    small = started("small", "counter", "--mib", 1024, "--allocs", 16, "--verify", 1, "--steps", 1000000,
                    "--step-ms", 5)
    small.wait_steps(3)
    cudaw_ok("resume", "--no-wait", big.pid)
    for _ in range(3):
        big.wait_steps(big.steps() + 3)
        equal(members()[small.pid]["context"], "out", "the context of the small job")
        small.wait_steps(small.steps() + 3)
    for job in (big, small):
        until(lambda job=job: members()[job.pid]["state"] == "runs", 60, "it has its turn")
        check("every word right" in job.finish(), "the job did not verify its memory")
    other.discard()


main(taking_turns(COUNT, 5 * 1024, "finetune.py", "--gib", 2, "--steps", 2000),
     together(6 * 1024, "nccl_training.py", "--kind", "ddp", "--ranks", 2, "--steps", 300, "--transport",
              "cumem"),
     through_kills, a_context_makes_room, large_jobs)
