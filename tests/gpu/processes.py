#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs of several processes: fork and exec, and processes that never use CUDA."""
import os

from gpulib import BUILD, Job, check, cudaw_ok, equal, jobs, main, until
from proclib import descriptors

COUNTER = os.path.join(BUILD, "tests", "programs", "counter")


def states(name):
    return [row["state"] for row in jobs().values() if row["name"] == name]


def a_job_that_forks():
    job = Job("forker", "--steps", 600, "--step-ms", 5, name="family")
    job.wait_steps(3)
    until(lambda: len(states("family")) == 2, 20, "the job and the child that uses CUDA are seen")
    equal(len({row["id"] for row in jobs().values()}), 1, "the number of ids")
    cudaw_ok("pause", "family")
    equal(states("family"), ["paused"] * 2, "the states after cudaw pause")
    job.check_still()
    cudaw_ok("resume", "family")
    equal(states("family"), ["running"] * 2, "the states after cudaw resume")
    check("every child well" in job.result(), "the job or a child of it was disturbed")


def a_shell_that_becomes_a_job():
    job = Job("/bin/sh", "-c", f"read line; exec {COUNTER} --mib 256 --steps 1000000 --step-ms 5")
    check(job.pid not in jobs(), "cudaw ps shows the shell")
    job.tell()
    job.wait_steps(3)
    job.pause()
    job.check_still()
    job.resume()
    check("every word right" in job.finish(), "the job did not verify its memory")


def a_process_without_cuda_is_left_alone():
    job = Job("/bin/sh", "-c", "echo started; read line; echo ended")
    job.wait_line("started")
    check(job.pid not in jobs(), "cudaw ps shows a shell")
    equal(os.listdir(f"/proc/{job.pid}/task"), [str(job.pid)], "the threads of the shell")
    files = descriptors(job.pid).values()
    check(not any("nvidia" in file or "socket" in file for file in files),
          f"the shell has open {files}")
    job.tell()
    check("ended" in job.result(), "the shell was disturbed")


main(a_job_that_forks, a_shell_that_becomes_a_job, a_process_without_cuda_is_left_alone)
