#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A job that has no descriptor left: nothing is decided by files that could not be opened."""
import contextlib
import os
import resource
import signal
import time

from simlib import SCRATCH, TSAN, cpu_seconds, kept_descriptors, skipped
from snapshotjobs import ask
from gpulib import Job, check, cudaw, equal, hog, main, until

COUNTS = os.path.join(SCRATCH, "counts")


def holding(**env):
    job = Job("hold", env=env)
    job.wait_line("holding")
    return job


def verified(job):
    job.tell()
    check("every byte right" in job.result(), "the job did not verify its memory")


@contextlib.contextmanager
def no_descriptors(job):
    """Those that it has stay; it gets no other."""
    ask(job, "status")      # to its end: those of the clients before are closed
    numbers = set(kept_descriptors(job.pid))
    most = min(set(range(len(numbers) + 1)) - numbers)
    saved = resource.prlimit(job.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(job.pid, resource.RLIMIT_NOFILE, (most, saved[1]))
    yield
    resource.prlimit(job.pid, resource.RLIMIT_NOFILE, saved)


def clients_are_told_that_there_is_no_descriptor():
    """One after the other, by the one that is kept for that; and it costs the program no time."""
    job = holding()
    with no_descriptors(job):
        before = cpu_seconds(job.pid)
        for request in ("status", "pause", "status"):
            equal(ask(job, request), ["end failed the program has no free descriptor for an answer "
                                      "(RLIMIT_NOFILE)"], f"the answer to {request}")
        said = cudaw("pause", job.pid)
        check("no free descriptor" in said.stderr, f"cudaw pause says {said.stderr!r}")
        time.sleep(0.5)
        spent = cpu_seconds(job.pid) - before
    check(spent < 0.3, f"the job spent {spent} s")
    equal(job.state(), "running", "the state once there are descriptors")
    verified(job)


def the_socket_alone_is_closed():
    """A program that closes files that are not its own need not close all of them."""
    job = Job("hold", "--close-listener", 1)
    job.wait_line("holding")
    job.send(signal.SIGUSR2)        # it looks for its files when it wakes up
    job.wait_state("running")
    job.pause()
    job.resume()
    # Sanitizers may have a word of their own.
    equal([line for line in job.stderr().splitlines() if line.startswith("cudaw[")], [],
          "what it says")
    verified(job)


def no_descriptor_for_a_socket():
    """Where the program has closed ours and left none, we listen as soon as there is one."""
    job = Job("hold", "--close-listener", 1)
    job.wait_line("holding")
    saved = resource.prlimit(job.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(job.pid, resource.RLIMIT_NOFILE, (3, saved[1]))
    job.send(signal.SIGUSR2)
    until(lambda: "Too many open files" in job.stderr(), 10, "it is said")
    time.sleep(2.5)                 # it tries again
    equal(job.stderr().count("Too many open files"), 1, "how often it is said")
    resource.prlimit(job.pid, resource.RLIMIT_NOFILE, saved)
    job.wait_state("running")
    job.pause()
    job.resume()
    verified(job)


def a_limit_below_what_is_open():
    """poll(2) fails then; the control thread goes on, and what it was told meanwhile counts."""
    job = holding()
    job.pause()
    saved = resource.prlimit(job.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(job.pid, resource.RLIMIT_NOFILE, (1, saved[1]))
    job.send(signal.SIGUSR1)
    until(lambda: "control: poll: Invalid argument" in job.stderr(), 10, "it is said")
    job.send(signal.SIGUSR2)
    time.sleep(1)       # the resume, which needs descriptors, waits
    resource.prlimit(job.pid, resource.RLIMIT_NOFILE, saved)
    job.wait_state("running")
    equal(job.stderr().count("control: poll"), 1, "how often it is said")
    job.pause()
    job.resume()
    verified(job)


def a_pause_that_can_not_see_the_host_memory():
    """It does not go on without: the limits of its control group might be what it misses."""
    job = holding(CUDAW_LOG="warn")
    with no_descriptors(job):
        job.send(signal.SIGUSR1)
        until(lambda: "pause: " in job.stderr(), 10, "it has tried to pause")
    row = job.status()
    equal(row["state"], "running", "the state")
    check("host memory" in (row["reason"] or ""), f"the reason is {row['reason']!r}")
    job.pause()
    job.resume()
    verified(job)


def a_resume_that_can_not_ask_for_gpu_memory():
    """A driver's restore that runs out of memory loses the job [H200]: it is not tried blindly."""
    job = holding(CUDAW_SIM_COUNT=COUNTS, CUDAW_NOTICES="1")
    job.pause()
    other, _ = hog()
    with no_descriptors(job):
        job.send(signal.SIGUSR2)
        until(lambda: "cannot be asked for: Too many open files" in job.stderr(), 20, "it says why it waits")
        # Before it has descriptors: there is no NVML here, so the next attempt calls the driver.
        other.discard()
    job.wait_state("running")
    verified(job)
    with open(COUNTS, encoding="ascii") as file:
        restores = [line.split()[1] for line in file if line.startswith("cuCheckpointProcessRestore ")]
    equal(restores, ["1"], "the number of restores")


def robs(case):
    """Mark a case whose program closes files of ours, which TSan takes for a race."""
    return skipped(case, "TSan reports descriptors that two threads close") if TSAN else case


main(robs(the_socket_alone_is_closed), robs(no_descriptor_for_a_socket),
     clients_are_told_that_there_is_no_descriptor, a_limit_below_what_is_open,
     a_pause_that_can_not_see_the_host_memory,
     a_resume_that_can_not_ask_for_gpu_memory)
