#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A runtime folder that is full, or whose locks another job keeps: jobs are paused and go on."""
import ctypes
import os

import simlib  # noqa: F401  (jobs run on the simulated driver)
from gpulib import RUNTIME_DIR, Job, Skip, check, main

CLONE_NEWNS = 0x20000
MS_REC, MS_PRIVATE = 0x4000, 0x40000
libc = ctypes.CDLL(None, use_errno=True)


def small_file_system(path):
    """Mount one that only this test and its jobs see."""
    os.makedirs(path, 0o700, exist_ok=True)
    if (libc.unshare(CLONE_NEWNS) or libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None) or
            libc.mount(b"none", path.encode(), b"tmpfs", 0, b"size=64k,mode=0700")):
        raise Skip(f"no file system can be mounted: {os.strerror(ctypes.get_errno())}")


def fill(path):
    with open(path, "wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            pass
    check(os.statvfs(path).f_bavail == 0, "the file system is not full")


def a_full_file_system():
    """Anybody can fill /tmp."""
    small_file_system(RUNTIME_DIR)
    try:
        job = Job("hold")
        job.wait_line("holding")
        fill(os.path.join(RUNTIME_DIR, "full"))
        for by in ("command", "signal"):
            job.pause(by)
            job.resume(by)
        job.tell()
        check("every byte right" in job.result(), "the job did not verify its memory")
    finally:
        libc.umount2(RUNTIME_DIR.encode(), 2)


main(a_full_file_system)
