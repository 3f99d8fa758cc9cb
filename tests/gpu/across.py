#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Copies between two GPUs without peer access work by each call, as natively, and through pauses; also
those of memory that another process shares by a legacy IPC handle.
"""
import os
import subprocess

from gpulib import BUILD, Job, check, cudaw_ok, job_command, main

GOOD = "across: every byte right"
PAUSES = 6


def names():
    """Of the calls, from number 1 on. The list needs no GPU, but the loader needs a driver."""
    program = os.path.join(BUILD, "tests", "programs", "across")
    command, env = job_command(program, ["--list", 1], "native")
    return subprocess.run(command, capture_output=True, text=True, env=env, check=True).stdout.splitlines()


def copies(number, *extra, **options):
    """A process whose first copy between the GPUs is made by this call."""
    return Job("across", "--call", number, "--steps", 4, *extra, **options)


def by_call(number, name):
    def case():
        for mode in ("native", "run"):
            check(GOOD in copies(number, mode=mode).result(), f"the job did not end well, {mode}")
    return f"copies between GPUs, {name}", case


def copies_between_GPUs_through_pauses():
    job = Job("across", "--steps", 100000, "--step-ms", 2)
    for i in range(PAUSES):
        job.wait_steps(job.steps() + len(names()))
        job.pause(("signal", "command")[i % 2])
        job.check_still(0.1)
        job.resume()
    job.wait_steps(job.steps() + len(names()))
    check(GOOD in job.finish(), "the job did not end well")


def of_opened_memory(gpu):
    """Each call in turn, with either context current, from memory that was opened just before."""
    def case():
        for mode in ("native", "run"):
            job = Job("across", "--opened", gpu, "--steps", 2 * len(names()), mode=mode)
            check(GOOD in job.result(), f"the job did not end well, {mode}")
    return f"copies of memory that GPU {gpu} has opened", case


def of_opened_memory_through_pauses(gpu):
    """The access that the first copies have got comes back."""
    def case():
        job = Job("across", "--opened", gpu, "--kept", 1, "--steps", 100000, "--step-ms", 2, name="across")
        for release in ("all", "memory"):
            job.wait_steps(job.steps() + 2)
            cudaw_ok("pause", "--release", release, "across")
            job.check_still(0.1)
            cudaw_ok("resume", "across")
            job.wait_steps(job.steps() + 2 * len(names()))
        check(GOOD in job.finish(), "the job did not end well")
    return f"copies of memory that GPU {gpu} has opened, through pauses", case


main(*[by_call(number, name) for number, name in enumerate(names(), 1)],
     copies_between_GPUs_through_pauses,
     *[make(gpu) for make in (of_opened_memory, of_opened_memory_through_pauses) for gpu in (1, 2)])
