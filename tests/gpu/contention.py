#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A resume that finds the GPU taken waits, loses nothing, and goes on when there is room. A pause does not need room."""
import signal

from gpulib import Job, check, cudaw, cudaw_ok, equal, hog, idle_gpu_used, main

MIB = 4096
ENV = {}


def resume_waits_for_memory():
    idle_gpu_used()
    job = Job("counter", "--mib", MIB, "--steps", 1000000, "--step-ms", 5)
    job.wait_steps(3)
    job.pause()
    other, _ = hog()
    done = cudaw("resume", "--timeout", 2, job.pid)
    equal(done.returncode, 5, "the exit code of a resume that times out")
    print(f"# {done.stderr.strip()}")
    check("GPU 0 (" in done.stderr and " GiB" in done.stderr and "the job stays paused" in done.stderr,
          f"it does not say what is missing: {done.stderr!r}")
    equal(job.state(), "paused", "the state after it")
    job.send(signal.SIGUSR2)
    job.wait_state("waiting", timeout=20)
    job.check_still(1)
    equal(job.state(), "waiting", "the state a second later")
    other.discard()
    job.wait_state("running", timeout=30)
    check("every word right" in job.finish(), "the job did not verify its memory")


def pauses_on_a_full_gpu():
    """The driver has no memory left for so much as a stream. What it takes for the pause itself must not
    be missing later."""
    idle_gpu_used()
    job = Job("counter", "--mib", MIB, "--steps", 1000000, "--step-ms", 5, env=ENV)
    job.wait_steps(3)
    other, _ = hog()
    for release in ("memory", "all"):
        cudaw_ok("pause", "--release", release, job.pid)
        cudaw_ok("resume", "--timeout", 20, job.pid)
        job.wait_steps(job.steps() + 3)
    check("every word right" in job.finish(), "the job did not verify its memory")
    other.discard()


main(resume_waits_for_memory, pauses_on_a_full_gpu)
