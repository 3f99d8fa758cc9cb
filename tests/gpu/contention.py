#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A resume that finds the GPU taken waits, loses nothing, and goes on when there is room."""
import signal

from gpulib import Job, check, cudaw, equal, hog, idle_gpu_used, main

MIB = 4096


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


main(resume_waits_for_memory)
