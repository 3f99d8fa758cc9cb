#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A resume that fails, or is given up half way, gives back what GPU memory it had: paused is paused."""
from simlib import LEFT_MIB, MIB, gpus_used
from gpulib import Job, cudaw, cudaw_ok, equal, main

RESTS = {"all": 0, "memory": LEFT_MIB * MIB}


def holding(release, **env):
    job = Job("hold", "--until-eof", 1, env={"CUDAW_RELEASE": release, **env})
    job.wait_line("holding")
    return job


def goes_on(job):
    cudaw_ok("resume", job.pid)
    job.tell()
    job.wait_line("hold: every byte right")
    job.process.stdin.close()
    job.result()


def fails(release, call):
    def case():
        job = holding(release, CUDAW_SIM_FAULT=f"{call}:2:999")
        cudaw_ok("pause", job.pid)
        equal(gpus_used(), [RESTS[release]], "the bytes in use while it is paused")
        equal(cudaw("resume", job.pid).returncode, 1, "the exit code of cudaw resume")
        equal(job.state(), "failed", "the state")
        equal(gpus_used(), [RESTS[release]], "the bytes in use after a resume that failed")
        goes_on(job)
    return f"with --release {release}, {call} fails", case


def given_up(release):
    """The resume waits, as another job has what it needs, with a part of its memory mapped or none."""
    def case():
        memory = {"CUDAW_SIM_MEMORY": str(256 * MIB)}
        job = holding(release, **memory)
        cudaw_ok("pause", job.pid)
        room = 256 - 64 - RESTS[release] // MIB - 20    # except the other's context
        other = Job("counter", "--mib", room, "--steps", 1000000, "--step-ms", 10, env=memory)
        other.wait_steps(2)
        used = gpus_used()
        cudaw_ok("resume", "--no-wait", job.pid)
        job.wait_state("waiting")
        cudaw_ok("pause", job.pid)
        equal(job.state(), "paused", "the state")
        equal(gpus_used(), used, "the bytes in use after the resume was given up")
        other.finish()
        goes_on(job)
    return f"with --release {release}, a pause comes while it waits", case


main(*[fails(release, "cuMemcpyHtoDAsync_v2") for release in RESTS],
     *[given_up(release) for release in RESTS])
