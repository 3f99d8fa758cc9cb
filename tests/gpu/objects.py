#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Memory that the program creates and maps by itself is carried through pauses, in the ways in which
known programs use it: every word is right, and a run prints what the native one prints.
"""
import os
import shutil

from gpulib import (SCRATCH, Job, check, cudaw, cudaw_ok, equal, hog, main, pause_at_random,
                    same_lines)

STEPS, STEP_MS, STILL, PAUSES = 200, 10, 0.2, 10
CHUNK_MIB = 16
HELD_MIB = 1024     # of the job that finds the GPU full
# The bytes that the program has between two steps, after the first ones: three objects of `scratch`, and
# those of twice, parts, hidden, bare and readable. In the midst of a step an object is made anew.
LEAST = 8 * (CHUNK_MIB << 20)
native = []


def arguments(steps):
    return "--chunk-mib", CHUNK_MIB, "--steps", steps, "--step-ms", STEP_MS


def undisturbed():
    if not native:
        native.append(Job("objects", *arguments(STEPS), mode="native").result())
    return native[0]


def carried(release, **env):
    def case():
        job = Job("objects", *arguments(STEPS), env={"CUDAW_RELEASE": release, **env})
        rows = pause_at_random(job, PAUSES, STEPS, STILL)
        check(all(rows), "the job ended before its last resume was done")
        check("stays on the GPU" not in job.said, f"the driver did not take it: {job.said}")
        same_lines(job.result(), undisturbed(), f"after {PAUSES} pauses")
    return f"all patterns, {release}{''.join(', ' + name for name in env)}", case


def held():
    """A job that lives until it is told to end, and has made some steps."""
    job = Job("objects", *arguments(1000000), env={"CUDAW_RELEASE": "memory"})
    job.wait_steps(10)
    return job


def a_pause_moves_the_bytes():
    job = Job("objects", *arguments(1000000), "--each-line", 1, env={"CUDAW_RELEASE": "memory"})
    job.make_steps(10)
    job.pause()
    status = job.status()
    check(status["pause_bytes"] >= LEAST, f"{status['pause_bytes']} bytes were given back")
    job.resume()
    cudaw_ok("trim", job.pid)
    job.make_steps(3)
    job.pause()
    job.resume()
    check("every word right" in job.finish(), "the job did not verify its memory")


def a_full_gpu_keeps_the_job_paused():
    """The counter in chunks: the first resume finds too little memory, the second has it."""
    for release in ("all", "memory"):
        job = Job("counter", "--mib", HELD_MIB, "--chunk-mib", CHUNK_MIB, "--steps", 1000000,
                  "--step-ms", STEP_MS, env={"CUDAW_RELEASE": release})
        job.wait_steps(3)
        job.pause()
        other, _ = hog()
        done = cudaw("resume", "--timeout", 1, job.pid)
        equal(done.returncode, 5, "the exit code of a resume that times out")
        equal(job.state(), "paused", "the state after it")
        other.discard()
        job.resume()
        check("every word right" in job.finish(), "the job did not verify its memory")


def snapshots_have_it():
    job, directory = held(), os.path.join(SCRATCH, "objects")
    for options in ((), ("--incremental",), ("--incremental",)):
        cudaw_ok("snapshot", "--gpu-only", *options, job.pid, directory, timeout=120)
        equal(job.state(), "running", "the state after a snapshot")
        cudaw_ok("verify", directory, timeout=120)
        job.wait_steps(job.steps() + 3)
    check("every word right" in job.finish(), "the job did not verify its memory")
    shutil.rmtree(directory)


main(*[carried(release) for release in ("all", "memory")], carried("memory", CUDAW_VERIFY="1"),
     a_pause_moves_the_bytes, a_full_gpu_keeps_the_job_paused, snapshots_have_it)
