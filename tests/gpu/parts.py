#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""parts.py PROGRAM [ARG]...: the program's memory goes out in parts and comes back in parts, at
random moments; in between it does not run, and its user pauses it now and then. It prints what the
native run prints. ARGs hold --steps N.
"""
import sys
import time

from gpulib import Job, check, cudaw_ok, equal, figure, main, same_lines, seeded
from lease import EVERYTHING, Lease

PROGRAM, ARGS = sys.argv[1], sys.argv[2:]
STEPS = int(ARGS[ARGS.index("--steps") + 1])
TURNS = 8
STILL = 0.2


def turn(job, lease, rng):
    """Out in one to three parts, and back with room that grows. Returns the seconds of each way, and
    the bytes."""
    start, freed = time.monotonic(), 0
    for share in rng.sample((4, 3, 2), rng.randrange(1, 4)):
        left = lease.last("mapped") if freed else job.status()["carried"]
        freed += lease.take(left // share)
    out = time.monotonic() - start
    job.check_still(STILL)
    equal(job.state(), "waiting", "the state of a job that has yielded")
    if rng.random() < 0.3:
        cudaw_ok("pause", "--release", "memory", job.pid)
        cudaw_ok("resume", "--no-wait", job.pid)
    start, room = time.monotonic(), lease.last("mapped")
    lease.send(f"room {room + freed // 2}")
    lease.until("mapped")
    lease.fill(EVERYTHING)
    return out, time.monotonic() - start, freed


def same_results():
    rng = seeded()
    native = Job(PROGRAM, *ARGS, mode="native").result(timeout=300)
    job = Job(PROGRAM, *ARGS, env={"CUDAW_RELEASE": "memory"})
    job.wait_steps(2, timeout=120)
    lease, turns = Lease(job), []
    for step in sorted(rng.sample(range(2, STEPS * 4 // 5), TURNS)):
        job.wait_steps(step, timeout=120)
        turns.append(turn(job, lease, rng))
    check(sum(freed for _, _, freed in turns), "no turn has freed anything")
    out, back, freed = max(turns, key=lambda one: one[2])
    figure("the most that was out", freed / 1e9, "GB")
    figure("out", out, "s")
    figure("back", back, "s")
    same_lines(job.result(timeout=300), native, f"after {TURNS} turns")


main((f"{PROGRAM} in parts", same_results))
