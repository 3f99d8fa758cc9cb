#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Where a pause puts the memory: zeros nowhere, the host's pool, the disk; what is kept of it, made
ready and given back; and that a resume can prove that nothing was lost.
"""
import os
import subprocess

from gpulib import (BUILD, SCRATCH, Group, Job, check, cudaw, cudaw_ok, equal, main,
                    until)

MIB = 1 << 20
COUNTER = os.path.join(BUILD, "tests", "programs", "counter")
ZEROS_MIB = 4096   # enough that zeros are looked for without being asked to


def holding(*args, **env):
    job = Job("hold", *args, env=env)
    job.wait_line("holding")
    return job


def verified(job):
    job.tell()
    check("every byte right" in job.result(), "the job did not verify its memory")


def memory_only(**env):
    return {"CUDAW_RELEASE": "memory", **env}


def digests_are_what_the_formula_says():
    check("every one right" in Job("digests", mode="native").result(), "digests says nothing")


def zeros_take_no_host_memory():
    job = holding("--zeros", ZEROS_MIB)
    for _ in range(2):
        job.pause()
        status = job.status()
        check(status["pause_bytes"] >= ZEROS_MIB * MIB, f"{status['pause_bytes']} bytes given back")
        check(status["paused"] < 64 * MIB, f"{status['paused']} bytes in host memory")
        job.resume()
    verified(job)


def a_resume_is_verified():
    job = holding(CUDAW_VERIFY="1")
    for _ in range(3):
        job.pause()
        job.resume()
    verified(job)


def trim_gives_back_the_pool():
    job = Job("counter", "--mib", 256, "--steps", 1000000, "--step-ms", 2, env=memory_only())
    job.wait_steps(2)
    job.pause()
    check("paused" in cudaw_ok("trim", job.pid), "a trim of a paused job says nothing")
    until(lambda: job.status()["pool"] >= 256 * MIB, 5, "the pool is pinned")
    job.resume()
    said = cudaw_ok("trim", job.pid)
    check("gave back 0.2" in said, f"trim says {said!r}")
    equal(job.status()["pool"], 0, "the bytes of the pool after it")
    job.pause()
    job.resume()
    check("every word right" in job.finish(), "the job did not verify its memory")


def trim_says_what_was_not_pinned():
    """The kernel could take it back, but has not."""
    job = Job("counter", "--mib", 256, "--steps", 1000000, "--step-ms", 2)
    job.wait_steps(2)
    job.pause()
    job.resume()
    equal(job.status()["pool"], 0, "the bytes of the pool")
    for gives in (True, False):
        said = cudaw_ok("trim", job.pid)
        check(("gave back 0.2" if gives else "gave back 0.00 GiB of host memory") in said,
              f"trim says {said!r}")
    check("every word right" in job.finish(), "the job did not verify its memory")


def a_pool_is_made_ready():
    for env, what in ((memory_only(CUDAW_PREPARE="1"), "memory"), ({"CUDAW_PREPARE": "1"}, "all")):
        job = Job("counter", "--mib", 256, "--steps", 1000000, "--step-ms", 2, env=env)
        job.wait_steps(2)
        until(lambda: job.status()["pool"] >= 256 * MIB, 10, f"the pool is ready, {what}")
        cudaw_ok("trim", job.pid)
        equal(job.status()["pool"], 0, "the bytes of the pool after a trim")
        job.pause()
        job.resume()
        until(lambda: job.status()["pool"] >= 256 * MIB, 10, "the pool is ready for the next pause")
        check("every word right" in job.finish(), "the job did not verify its memory")


def counter_in(group, mib, chunk_mib=0, env=None):
    job = Job(*group.command("counter", "--mib", mib, "--chunk-mib", chunk_mib, "--steps", 1000000,
                             "--step-ms", 2), env=env)
    job.wait_steps(2, timeout=60)
    return job


def used_by_group(mib):
    """What the group of a running job of @mib has in use."""
    with Group(1 << 40) as group:
        job = counter_in(group, mib)
        used = group.used()
        job.finish()
    return used


def what_memory_does_not_hold_goes_to_disk():
    # 256 MiB are left alone, so there are about 144 MiB for 512, and for the driver's checkpoint.
    limit = used_by_group(512) + 400 * MIB
    with Group(limit) as group:
        job = counter_in(group, 512)
        done = cudaw("pause", job.pid)
        equal(done.returncode, 1, "the exit code of a pause that does not fit")
        check("GiB are missing" in done.stderr, f"stderr does not say how much: {done.stderr!r}")
        job.wait_steps(job.steps() + 2)
        job.finish()
        # cudaMalloc's memory, and memory that the program maps by itself.
        for chunk_mib in (0, 16):
            job = counter_in(group, 512, chunk_mib, env=memory_only(CUDAW_SPILL_DIR=SCRATCH))
            for _ in range(2):
                job.pause()
                status = job.status()
                check(status["spilled"] >= 200 * MIB, f"{status['spilled']} bytes spilled")
                check(status["paused"] <= 200 * MIB, f"{status['paused']} bytes in host memory")
                job.resume()
                equal(job.status()["spilled"], 0, "the bytes spilled while it runs")
            check("every word right" in job.finish(), "the job did not verify its memory")


def a_pause_that_fits_is_not_killed():
    """With what the driver's checkpoint takes: 512 MiB at the most, for a context."""
    with Group(used_by_group(512) + 512 * MIB + (256 + 512 + 64) * MIB) as group:
        job = counter_in(group, 512)
        job.pause()
        job.resume()
        check("every word right" in job.finish(), "the job did not verify its memory")


def a_full_disk_is_said():
    """A file system of 64 MiB, in a mount namespace of the job's own."""
    with Group(used_by_group(512) + 400 * MIB) as group:
        directory = os.path.join(SCRATCH, "small")
        os.makedirs(directory, exist_ok=True)
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "none", directory],
                                 capture_output=True, text=True, check=False)
        if mounted.returncode:
            directory = "/nonexistent"
        try:
            job = counter_in(group, 512, env=memory_only(CUDAW_SPILL_DIR=directory))
            done = cudaw("pause", job.pid)
            equal(done.returncode, 1, "the exit code of a pause that does not fit")
            check("GiB are missing" in done.stderr, f"stderr: {done.stderr!r}")
            job.wait_steps(job.steps() + 2)
            check("every word right" in job.finish(), "the job did not verify its memory")
        finally:
            if not mounted.returncode:
                subprocess.run(["umount", directory], check=True)


main(digests_are_what_the_formula_says, zeros_take_no_host_memory, a_resume_is_verified, trim_gives_back_the_pool,
     trim_says_what_was_not_pinned, a_pool_is_made_ready, what_memory_does_not_hold_goes_to_disk,
     a_pause_that_fits_is_not_killed, a_full_disk_is_said)
