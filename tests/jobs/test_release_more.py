#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A job that is paused with its context on the GPU is asked to give that back, too: what a failure
leaves, and what other requests do meanwhile. tests/gpu/released.py has the plain case.
"""
import json
import os
import subprocess

from simlib import HELD, SIM_DIR, gpu_used, held_back, hold, let_go
from snapshotjobs import connected, end_of
from gpulib import CUDAW, PATIENCE, Job, base_environment, check, cudaw, cudaw_ok, equal, main, until

MEMORY, ALL = ("--release", "memory"), ("--release", "all")


def counter(*args, **env):
    job = Job("counter", "--mib", 16, *args, "--steps", 1000000, "--step-ms", 10, env=env)
    job.wait_steps(3)
    return job


def fails(job, code, text):
    done = cudaw("pause", *ALL, job.pid)
    equal(done.returncode, code, f"the exit code ({done.stderr.strip()})")
    check(text in done.stderr, f"it says {done.stderr!r}")
    equal(job.state(), "paused", "the state")
    check(text in job.status()["reason"], "cudaw ps does not say why")


def goes_on(job):
    job.resume()
    job.wait_steps(job.steps() + 3)
    check("every word right" in job.finish(), "the job did not verify its memory")


def what_cannot_be_carried_is_refused_by_name():
    job = Job("memory_kinds", "--kind", "managed", "--steps", 1000000, "--step-ms", 10)
    job.wait_steps(3)
    cudaw_ok("pause", *MEMORY, job.pid)
    fails(job, 6, "managed allocation")
    job.resume()
    job.finish()


def a_driver_that_fails_leaves_it_paused():
    job = counter(CUDAW_SIM_FAULT="cuCheckpointProcessCheckpoint:1:999")
    cudaw_ok("pause", *MEMORY, job.pid)
    fails(job, 6, "cuCheckpointProcessCheckpoint: CUDA_ERROR_UNKNOWN")
    cudaw_ok("pause", *ALL, job.pid)
    equal((gpu_used(), job.status()["reason"]), (0, None), "what it uses, and the reason")
    goes_on(job)


def a_driver_without_checkpoint_is_named():
    """One of before r570. A pause for which nobody asked for all says so too: all is the default."""
    job = counter(CUDAW_REAL_LIBCUDA=os.path.join(SIM_DIR, "old", "libcuda.so.1"))
    note = "the context stays on the GPU: the driver has no checkpoint"
    for asked in (ALL, ()):
        said = cudaw_ok("pause", *asked, job.pid)
        check(note in said, f"cudaw pause {asked} says {said!r}")
        job.resume()
    row, = json.loads(cudaw_ok("pause", *ALL, "--json", job.pid))
    check(note in (row["note"] or ""), f"the note is {row['note']!r}")
    fails(job, 6, "the driver has no checkpoint")
    job.resume()
    check(note not in cudaw_ok("pause", *MEMORY, job.pid), "the context stays as it was asked to")
    goes_on(job)


def a_request_that_comes_during_the_pause():
    """Both clients are answered when the job has given back all."""
    job = counter(**HELD)
    hold("out")
    clients = [connected(job, f"pause {release}\n".encode()) for release in ("memory", "all")]
    job.wait_state("pausing")   # which is told after both have been heard
    let_go("out")
    for client in clients:
        equal((end_of(client), gpu_used()), ("end ok", 0), "the answer, and what it uses")
    goes_on(job)


def a_resume_waits_for_its_end():
    job = counter(**HELD, CUDAW_SIM_HELD_CALL="cuCheckpointProcessCheckpoint")
    cudaw_ok("pause", *MEMORY, job.pid)
    hold("call")
    pause = subprocess.Popen([CUDAW, "pause", *ALL, str(job.pid)], text=True, env=base_environment(),
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    until(lambda: held_back("call") == {job.pid}, 20, "the driver's checkpoint is under way")
    resume = connected(job, b"resume\n")
    job.status()    # which is told after the resume has been heard
    let_go("call")
    said, _ = pause.communicate(timeout=30 * PATIENCE)
    check("given back now" in said, f"the pause said {said!r}")
    equal(end_of(resume), "end ok", "the answer to the resume")
    job.wait_steps(job.steps() + 3)
    check("every word right" in job.finish(), "the job did not verify its memory")


main(what_cannot_be_carried_is_refused_by_name, a_driver_that_fails_leaves_it_paused,
     a_driver_without_checkpoint_is_named, a_request_that_comes_during_the_pause, a_resume_waits_for_its_end)
