#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""translated.py PAUSES RELEASE PROGRAM [ARG]...: with CUDAW_ADDRESSING=translated and CUDAW_RELEASE
the program prints what it prints natively, through pauses after which memory is at other real
addresses.
"""
import os
import re
import sys

from gpulib import SCRATCH, Job, check, figure, main, same_lines, seeded

PAUSES, RELEASE, PROGRAM, ARGS = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:]
LOG = os.path.join(SCRATCH, "log")
TRANSLATED = {"CUDAW_ADDRESSING": "translated", "CUDAW_RELEASE": RELEASE, "CUDAW_LOG": "debug",
              "CUDAW_LOG_FILE": LOG}
PLACE = re.compile(r"(\d+) bytes at (0x[0-9a-f]+) are at (0x[0-9a-f]+)")


def places():
    """Where each virtual address is, as far as the log goes: {virtual: [real, ...]}."""
    found = {}
    with open(LOG, encoding="utf-8", errors="replace") as file:
        for _, virtual, real in PLACE.findall(file.read()):
            found.setdefault(virtual, []).append(real)
    return found


def memory_moves():
    native = Job(PROGRAM, *ARGS, mode="native").result(timeout=240)
    job = Job(PROGRAM, *ARGS, env=TRANSLATED)
    job.wait_steps(2, timeout=120)
    rng = seeded()
    moved = 0
    for i in range(PAUSES):
        job.wait_steps(job.steps() + rng.randint(1, 3), timeout=120)
        by = ("command", "signal")[i % 2]
        job.pause(by)
        before = places()
        job.resume(by)
        after = places()
        again = [virtual for virtual in before if len(after[virtual]) > len(before[virtual])]
        check(again, "nothing was mapped again")
        moved += sum(after[virtual][-1] != before[virtual][-1] for virtual in again)
    same_lines(job.result(timeout=240), native, "with translated addresses")
    check(moved or not PAUSES, "all memory came back at the addresses that it had before")
    figure("moved", moved, "regions")


main((f"{PROGRAM} with translated addresses, {PAUSES} pauses", memory_moves))
