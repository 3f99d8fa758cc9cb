#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A pause is given up while a kernel runs in one context, and the program goes on to end its primary
context and to take it again. What is left of the pause does nothing to the new one, and what lived in
the old one is forgotten.
"""
from simlib import MIB
from gpulib import Job, check, cudaw, cudaw_ok, equal, main


def given_up_and(verb, *args):
    def case():
        job = Job("primary_again", *args)
        job.wait_line("spinning")
        done = cudaw("pause", "--timeout", 0.3, job.pid)
        equal(done.returncode, 5, f"the exit code of cudaw pause ({done.stderr.strip()})")
        equal(job.state(), "running", "the state")
        job.tell()
        job.wait_line("again")      # although the kernel runs still
        job.tell()
        job.wait_line("the kernel ended")
        job.pause()                 # what was left of the first pause has ended
        equal(job.status()["carried"], 4 * MIB, "the bytes of the program's memory")
        cudaw_ok("resume", job.pid)
        job.tell()
        check("primary_again: right" in job.result(), "the job did not verify its memory")
    return f"the primary context is {verb} after a pause was given up", case


def a_release_that_is_not_the_last():
    """It returns at once, as it does natively, though what is left of the pause waits inside."""
    job = Job("primary_again", "--shared", 1)
    job.wait_line("spinning")
    equal(cudaw("pause", "--timeout", 0.3, job.pid).returncode, 5, "the exit code of cudaw pause")
    job.tell()
    job.wait_line("released")
    job.tell()
    job.wait_line("the kernel ended")
    equal(len(job.status()["gpu"]), 1, "the GPUs on which it has a context, though no memory")
    job.pause()
    cudaw_ok("resume", job.pid)
    job.tell()
    job.wait_line("ended")
    equal(job.status()["gpu"], [], "the GPUs after the end of its context")
    job.tell()
    check("primary_again: right" in job.result(), "the job did not end right")


main(given_up_and("released"), given_up_and("reset", "--reset", 1), a_release_that_is_not_the_last)
