#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A runtime directory that is full, or whose locks another job keeps: jobs are paused and go on."""
import contextlib
import ctypes
import fcntl
import glob
import os
import shutil
import tempfile

from simlib import MIB, SCRATCH, paused_and_resumed
from gpulib import RUNTIME_DIR, Job, Skip, check, cudaw, cudaw_ok, equal, faces, main

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


def holding():
    job = Job("hold")
    job.wait_line("holding")
    return job


def verified(job):
    job.tell()
    check("every byte right" in job.result(), "the job did not verify its memory")


def promise(file, size):
    """As checkpoint/host/promises.h has it."""
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, size // MIB, 1 << 62)


def knowing_free_memory(size):
    """A job that is told so much by what stands in for cudaw-freemem."""
    directory = tempfile.mkdtemp(dir=SCRATCH)
    shutil.copy(os.path.join(faces(), "libcuda.so.1"), directory)
    program = os.path.join(directory, "cudaw-freemem")
    with open(program, "w", encoding="ascii") as file:
        file.write(f"#!/bin/sh\nfor gpu; do echo {size}; done\n")
    os.chmod(program, 0o755)
    job = Job("hold", mode="path", env={"LD_LIBRARY_PATH": directory})
    job.wait_line("holding")
    return job


@contextlib.contextmanager
def another_job_resumes(size):
    """It has the lock of the GPU, and is about to take so many bytes."""
    locks = glob.glob(os.path.join(RUNTIME_DIR, "GPU-*.lock"))
    equal(len(locks), 1, "the number of lock files")
    with open(locks[0], "r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        promise(file, size)
        yield


def another_job_is_stopped_with_the_lock():
    """There is enough for both: the resume waits a moment only."""
    job = knowing_free_memory(4096 * MIB)
    paused_and_resumed(job)
    with another_job_resumes(1024 * MIB):
        paused_and_resumed(job)
    verified(job)


def another_job_is_stopped_before_it_takes_the_rest():
    """It may go on at any time, and is lost without what it was promised."""
    job = knowing_free_memory(4096 * MIB)
    paused_and_resumed(job)
    job.pause()
    with another_job_resumes(4096 * MIB):
        done = cudaw("resume", "--timeout", 5, job.pid)
        equal(done.returncode, 5, f"the exit code of cudaw resume ({done.stderr.strip()})")
    job.resume()
    verified(job)


def a_full_file_system():
    """Anybody can fill /tmp."""
    small_file_system(RUNTIME_DIR)
    try:
        job = holding()
        fill(os.path.join(RUNTIME_DIR, "full"))
        for by in ("command", "signal"):
            paused_and_resumed(job, by=by)
        verified(job)
    finally:
        libc.umount2(RUNTIME_DIR.encode(), 2)


def a_directory_that_somebody_removes_is_made_again():
    """As those do who clean up /tmp; also while the job is paused."""
    job = holding()
    for verb in ("pause", "resume"):
        shutil.rmtree(RUNTIME_DIR)
        job.until(lambda: os.path.exists(os.path.join(RUNTIME_DIR, f"{job.pid}.sock")), 20, "the socket is there again")
        cudaw_ok(verb, job.pid)
    verified(job)


main(a_directory_that_somebody_removes_is_made_again, another_job_is_stopped_with_the_lock,
     another_job_is_stopped_before_it_takes_the_rest, a_full_file_system)
