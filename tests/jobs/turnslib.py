# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests of cudawd with real jobs on the simulated GPU."""
import json
import os
import signal

from simlib import HOLD, MIB, hold, is_stopped, knows_gpu, let_go
from gpulib import BUILD, Job, check, cudaw_ok
import daemons
from harness import until
from daemons import listed, members  # noqa: F401

FOREVER = 100000000
MEMORY_MIB, CONTEXT_MIB, MARGIN_MIB = 288, 16, 16
daemons.CUDAWD = os.path.join(BUILD, "tests", "cudawd_clock")   # which checks its books
ENV = {"CUDAW_TURNS": "user", "CUDAW_RELEASE": "memory", "CUDAW_SIM_MEMORY": str(MEMORY_MIB * MIB),
       "CUDAW_SIM_CONTEXT": str(CONTEXT_MIB * MIB), "CUDAW_TSTP_TIMEOUT": "60"}


def start_daemon(*options, **settings):
    """Its NVML knows the simulated GPU; the jobs have none."""
    return daemons.start_daemon("--margin", f"{MARGIN_MIB}M", "--quantum", "0.5", "--linger", "600", *options,
                                env=knows_gpu(), **settings)


def started(name, program, *args, mode="run", group=None, **env):
    """@group 0: the job is a process group of its own, as a shell's is."""
    job = Job(program, *args, mode=mode, name=name, env={**ENV, **env}, process_group=group)
    job.name = name
    return job


def counting(name, mib, steps, allocs=12, **options):
    return started(name, "counter", "--mib", mib, "--allocs", allocs, "--verify", 1, "--steps", steps,
                   "--step-ms", 2, **options)


def ranks(name, program, count, *args, **options):
    """A job of @count processes; each of them has joined."""
    job = started(name, program, "--ranks", count, *args, "--steps", FOREVER, "--step-ms", 10, **options)
    job.until(lambda: len(rows(name)) == count, 30, "all its processes have joined")
    return job


def rows(name):
    """The members of this name."""
    return [row for row in listed() if row["name"] == name]


def events(kind, name=None):
    """What cudawd said of this kind, of the jobs of this name or of all."""
    found = [json.loads(line) for line in cudaw_ok("events", "--json").splitlines()]
    return [event for event in found
            if event["event"] == kind and event["number"] is not None and name in (None, event["name"])]


def states(name):
    return [row["state"] for row in rows(name)]


def hold_entering(name, way):
    """Its processes get memory, and their copies onto the GPU wait for @way: from before, as those of its steps must
    not."""
    def is_held():
        found, held = set(states(name)), os.path.exists(HOLD[way])
        if found == {"waits"} and not held:
            hold(way)
        elif "runs" in found and held:  # it was too late
            let_go(way)
        return held and found == {"enters"}
    until(is_held, 30, f"{name} enters")


def on_gpu(name):
    return sum(gpu["mapped"] for row in rows(name) for gpu in row["gpu"])


def stop(job, pids):
    """By SIGTSTP."""
    for pid in pids:
        os.kill(pid, signal.SIGTSTP)
    job.until(lambda: all(map(is_stopped, pids)), 20, "it is stopped")


def take_turns(jobs, steps=3):
    """Each of them makes so many more steps."""
    wanted = [(job, job.steps() + steps) for job in jobs]
    for job, count in wanted:
        job.wait_steps(count)


def finish(job):
    """It verifies its memory, and ends. In its turn, as it would get the others' memory for that."""
    until(lambda: members()[job.pid]["state"] in ("runs", "idle"), 60, "it has its turn")
    check("every word right" in job.finish(), "the job did not verify its memory")
