#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Frees beside captures, and in the order of a stream: natively if every driver allows what the
program does, and under cudaw.
"""
from gpulib import Job, check, main

NATIVE = ("relaxed", "elsewhere", "full", "full-before", "beside", "ordered-captured",
          "ordered-short", "ordered-between")
ALL = NATIVE + ("full-then-busy", "full-small", "destroyed", "twice", "memory-short",
                "retained", "older", "ordered", "ordered-destroyed", "ordered-many", "ordered-threads",
                "ordered-asked")
PAUSED = ("full-paused", "ordered-paused")


def right(name, mode):
    def case():
        job = Job("frees", name, mode=mode)
        check("right" in job.result(), f"frees {name}")
    return f"{name}, {'natively' if mode == 'native' else 'under cudaw'}", case


def paused(name):
    def case():
        job = Job("frees", name)
        job.wait_line("holding")
        for by in ("signal", "command"):
            job.pause(by)
            job.check_still(0.2)
            job.resume(by)
        job.tell()
        check("right" in job.result(), f"frees {name}")
    return f"{name}, under cudaw", case


main(*[right(name, "native") for name in NATIVE], *[right(name, "run") for name in ALL],
     *[paused(name) for name in PAUSED])
