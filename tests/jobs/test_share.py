#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Real jobs that do not fit together take turns, as cudawd decides."""
import json
import os
import shutil
import signal
import subprocess
import time

from simlib import MIB, SCRATCH, process_used
from gpulib import (BUILD, RUNTIME_DIR, Job, after_case, base_environment, check, cudaw, cudaw_ok,
                    equal, main)
from harness import ends_with_us, until

CUDAWD = os.path.join(BUILD, "bin", "cudawd")
MEMORY_MIB, CONTEXT_MIB, MARGIN_MIB = 288, 16, 16
SIZE_MIB = 140      # two do not fit
STEPS = 120
daemons = []


def start_daemon(*options):
    """Its NVML knows the simulated GPU; the jobs have none."""
    libraries = os.path.join(SCRATCH, "nvml")
    os.makedirs(libraries, exist_ok=True)
    shutil.copy(f"{BUILD}/tests/preload/nvml.so", f"{libraries}/libnvidia-ml.so.1")
    os.makedirs(RUNTIME_DIR, mode=0o700, exist_ok=True)
    env = {**base_environment(), "LD_LIBRARY_PATH": libraries,
           "TEST_NVML_FILE": os.environ["CUDAW_SIM_SHARED"]}
    process = ends_with_us(subprocess.Popen(
        [CUDAWD, "--margin", f"{MARGIN_MIB}M", "--quantum", "0.5", "--residence", "0.2", "--linger", "60",
         *options],
        env=env))
    daemons.append(process)
    until(lambda: cudaw("share").returncode == 0, 5, "cudawd answers")
    return process


def end_daemons(_good):
    while daemons:
        daemon = daemons.pop()
        daemon.kill()
        daemon.wait()


after_case.append(end_daemons)


def members():
    return {row["pid"]: row for row in json.loads(cudaw_ok("share", "--json"))["members"]}


def started(name, size=SIZE_MIB):
    return Job("counter", "--mib", size, "--allocs", 12, "--verify", 1, "--steps", STEPS, "--step-ms", 2,
               name=name, env={"CUDAW_SHARE": "user", "CUDAW_RELEASE": "memory",
                               "CUDAW_SIM_MEMORY": str(MEMORY_MIB * MIB),
                               "CUDAW_SIM_CONTEXT": str(CONTEXT_MIB * MIB)})


def two():
    first = started("first")
    first.wait_steps(3)
    until(lambda: first.pid in members(), 5, "the first has joined")
    return first, started("second")


def take_turns(jobs, steps=3):
    """Each of them makes so many more steps."""
    wanted = [(job, job.steps() + steps) for job in jobs]
    for job, count in wanted:
        job.wait_steps(count)


def finish(job):
    """It makes all its steps: a signal would end it out of its turn."""
    check("every word right" in job.result(), "the job did not verify its memory")


def two_that_do_not_fit():
    start_daemon()
    jobs = two()
    for _ in range(4):
        take_turns(jobs)
    check(sum(row["turns"] for row in members().values()) >= 2, f"the turns are {members()}")
    kinds = {json.loads(line)["event"] for line in cudaw_ok("events", "--json").splitlines()}
    check({"joined", "grows", "gives", "gave", "runs"} <= kinds, f"the events are {kinds}")
    for job in jobs:
        finish(job)
    until(lambda: not members(), 5, "both have left")


def two_that_fit():
    start_daemon()
    jobs = [started(name, 60) for name in ("first", "second")]
    take_turns(jobs, 20)
    time.sleep(1)
    equal([(row["state"], row["turns"]) for row in members().values()], [("runs", 0)] * 2)
    for job in jobs:
        finish(job)


def the_daemon_is_killed():
    """Who is out waits for memory as ever; and a new daemon lets them take turns again."""
    daemon = start_daemon()
    jobs = two()
    take_turns(jobs)
    daemon.kill()
    daemon.wait()
    time.sleep(0.5)
    start_daemon()
    until(lambda: len(members()) == 2, 10, "both have joined again")
    for _ in range(2):
        take_turns(jobs)
    for job in jobs:
        finish(job)


def one_is_killed():
    start_daemon()
    for moment in ("leaving", "enters"):
        first, second = two()
        take_turns((first, second))
        until(lambda: members()[second.pid]["state"] == moment, 20, f"the second is {moment}")
        second.send(signal.SIGKILL)
        second.process.wait()
        second.discard()
        take_turns([first], 20)
        equal(process_used(second.pid), None, "the MiB of a job that was killed")
        finish(first)


main(two_that_do_not_fit, two_that_fit, the_daemon_is_killed, one_is_killed)
