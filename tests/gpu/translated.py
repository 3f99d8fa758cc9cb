#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""translated.py PAUSES PROGRAM [ARG]...: with CUDAW_ADDRESSING=translated the program prints what
it prints natively, through pauses by the driver's checkpoint and pauses that leave the context on
the GPU, in turn. After the latter all memory is at other real addresses: what it left is taken
meanwhile.
"""
import os
import re
import sys

from gpulib import (BUILD, SCRATCH, Job, check, cudaw_ok, equal, faces, figure, main, same_lines,
                    seeded, until)

PAUSES, PROGRAM, ARGS = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
STEPS = int(ARGS[ARGS.index("--steps") + 1])
RELEASE = "all"
LOG = os.path.join(SCRATCH, "log")
TAKER = {"LD_PRELOAD": os.path.join(BUILD, "tests", "preload", "taker.so"), "TAKER_DIR": SCRATCH}
PLACE = re.compile(r"(\d+) bytes at (0x[0-9a-f]+) are at (0x[0-9a-f]+)")


def mappings():
    """What the log says: [(size, virtual address, real address), ...]."""
    with open(LOG, encoding="utf-8", errors="replace") as file:
        return PLACE.findall(file.read())


def real_driver(pid):
    with open(f"/proc/{pid}/maps", encoding="utf-8") as file:
        paths = {line.split(maxsplit=5)[-1].strip() for line in file if "/libcuda.so" in line}
    paths = [path for path in paths if not path.startswith(faces())]
    equal(len(paths), 1, f"how many drivers are among {paths}")
    return paths[0]


def take(job, left):
    """Fill the places with memory that stays, see tests/preload/taker.c."""
    path = os.path.join(SCRATCH, str(job.pid))
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write("\n".join([real_driver(job.pid), *left, ""]))
    os.rename(path + ".new", path)
    until(lambda: not os.path.exists(path), 20, "the places that the pause left are taken")


def pause(job, moving):
    if moving:
        cudaw_ok("pause", "--release", "memory", job.pid)
    else:
        job.pause("signal")
    before = mappings()
    was = {virtual: (size, real) for size, virtual, real in before}
    if moving and TAKER:
        take(job, [f"{size} {real}" for size, real in was.values()])
    job.resume("command" if moving else "signal")
    now = {}
    for _, virtual, real in mappings()[len(before):]:
        now.setdefault(virtual, real)   # later ones are the program's
    again = was.keys() & now.keys()
    check(again, "nothing was mapped again")
    moved = sum(now[virtual] != was[virtual][1] for virtual in again)
    if moving:
        equal(moved, len(again), f"mappings that moved, of {len(again)}")
    return moved


def memory_moves():
    native = Job(PROGRAM, *ARGS, mode="native").result(timeout=240)
    if os.path.exists(LOG):     # another case's
        os.unlink(LOG)
    job = Job(PROGRAM, *ARGS, env={
        "CUDAW_ADDRESSING": "translated", "CUDAW_RELEASE": RELEASE, "CUDAW_LOG": "debug",
        "CUDAW_LOG_FILE": LOG, **TAKER})
    job.wait_steps(2, timeout=120)
    rng = seeded()
    moved = 0
    for i in range(PAUSES):
        job.wait_steps(min(STEPS, job.steps() + rng.randint(1, 3)), timeout=120)
        moved += pause(job, moving=i % 2 == 0)
    same_lines(job.result(timeout=240), native, "with translated addresses")
    figure("moved", moved, "regions")


main((f"{PROGRAM} with translated addresses, {PAUSES} pauses", memory_moves))
