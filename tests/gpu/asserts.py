#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A job whose kernel has hit an assertion, with which it has not synchronised yet: a pause is refused
with the name of the error, and the program gets from its next call what it gets natively.
"""
import os
import signal

from gpulib import (BUILD, SCRATCH, Job, check, cudaw, equal, jobs, main, same_lines, until)

PROGRAMS = os.path.join(BUILD, "tests", "programs")
ERROR = "CUDA_ERROR_ASSERT"
DRAIN = 3
THEN = {"synchronises": 0, "copies": 1, "launches": 2}


def asserted(*args, **options):
    job = Job("asserts", *args, **options)
    job.wait_line("asserted")
    return job


def natively(*args):
    job = asserted(*args, mode="native")
    job.tell()
    return job.result()


def another_thread_finds_the_error():
    """The fact that a pause relies on, natively."""
    said = natively("--then", DRAIN)
    print("".join(f"# {line}\n" for line in said.splitlines()), end="")
    check("it is active" in said, "the context is not active")
    check(f"the next call: {ERROR}" in said, "another thread synchronises without the error")


def refused(job, *command):
    done = cudaw(*command)
    equal(done.returncode, 1, f"the exit code of cudaw {command} ({done.stderr.strip()})")
    check(f"in error ({ERROR})" in done.stderr, f"it does not name the error: {done.stderr!r}")
    equal(job.state(), "running", "the state of the job")


def has_its_error(job, *args):
    job.tell()
    same_lines(job.result(), natively(*args), "after the pause")


def paused(release, then, *args, **env):
    def case():
        args_of = (*args, "--then", THEN[then])
        job = asserted(*args_of, env=env)
        refused(job, "pause", "--release", release, job.pid)
        refused(job, "pause", "--release", release, job.pid)
        has_its_error(job, *args_of)
    with_what = "".join(f" {word}" for word in [*args, *env])
    return f"paused with release {release}{with_what}, then it {then}", case


def paused_by_signal():
    job = asserted()
    job.send(signal.SIGUSR1)
    job.until(lambda: ERROR in (job.status()["reason"] or ""), 20, "cudaw ps says why it runs on")
    equal(job.state(), "running", "the state of the job")
    has_its_error(job)


def a_snapshot():
    job = asserted()
    directory = os.path.join(SCRATCH, "snapshot")
    refused(job, "snapshot", "--gpu-only", job.pid, directory)
    check(not os.path.exists(os.path.join(directory, "manifest.json")), "there is a snapshot")
    has_its_error(job)


def beside_another_process():
    """The two pause together or not at all."""
    other = f"{PROGRAMS}/counter --steps 1000000 --step-ms 5 >/dev/null"
    job = Job("/bin/sh", "-c", f"{other} & exec {PROGRAMS}/asserts", name="pair")
    job.wait_line("asserted")
    job.until(lambda: len(jobs()) == 2, 20, "both processes use CUDA")
    peer = (jobs().keys() - {job.pid}).pop()
    refused(job, "pause", "pair")
    until(lambda: jobs()[peer]["state"] == "running", 10, "the other process runs on")
    has_its_error(job)
    os.kill(peer, signal.SIGKILL)


main(another_thread_finds_the_error,
     *[paused(release, then) for release in ("all", "memory") for then in THEN],
     paused("all", "synchronises", "--mib", 0), paused("all", "synchronises", "--mib", 2048),
     paused("all", "copies", CUDAW_VERIFY="1"), paused_by_signal, a_snapshot,
     beside_another_process)
