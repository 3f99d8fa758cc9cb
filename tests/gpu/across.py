#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Copies between two GPUs without peer access work by each call, as natively, and through pauses."""
import os
import subprocess

from gpulib import BUILD, Job, check, job_command, main

GOOD = "across: every byte right"
PAUSES = 6


def names():
    """Of the calls, from number 1 on. The list needs no GPU, but the loader needs a driver."""
    program = os.path.join(BUILD, "tests", "programs", "across")
    command, env = job_command(program, ["--list", 1], "native")
    return subprocess.run(command, capture_output=True, text=True, env=env, check=True).stdout.splitlines()


def copies(number, **options):
    """A process whose first copy between the GPUs is made by this call."""
    return Job("across", "--call", number, "--steps", 4, **options)


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


main(*[by_call(number, name) for number, name in enumerate(names(), 1)],
     copies_between_GPUs_through_pauses)
