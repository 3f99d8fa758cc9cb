#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Signals and requests at awkward moments: each does the sensible thing."""
import signal
import time

from gpulib import Job, check, cudaw_ok, equal, is_blocked, is_pending, main, seeded
from proclib import threads_of

MIB = 256
ENDLESS = ("--steps", 1000000, "--step-ms", 5)


def counter(*args):
    job = Job("counter", "--mib", MIB, *ENDLESS, *args)
    job.wait_steps(3)
    return job


def finish_right(job):
    check("every word right" in job.finish(), "the job did not verify its memory")


def pausing_twice():
    job = counter()
    for by in ("signal", "command"):
        job.pause(by)
        job.pause(by)
        job.check_still()
        job.resume(by)
        job.wait_steps(job.steps() + 3)
    finish_right(job)


def resuming_a_running_job():
    job = counter()
    job.send(signal.SIGUSR2)
    cudaw_ok("resume", job.pid)
    equal(job.state(), "running", "the state")
    job.wait_steps(job.steps() + 3)
    finish_right(job)


def a_burst_of_signals():
    rng = seeded()
    job = counter()
    takers = [thread for thread in threads_of(job.pid) if not is_blocked(thread, signal.SIGUSR2)]
    for _ in range(200):
        job.send(rng.choice((signal.SIGUSR1, signal.SIGUSR2)))
        time.sleep(rng.choice((0, 0, 0.001, 0.01)))
    # Whatever the burst came to, the last word counts. Of two signals that wait to be taken, the one of
    # the lower number comes first, which is SIGUSR1.
    job.until(lambda: not is_pending(job.pid, signal.SIGUSR2), 10, "the burst is over")
    job.until(lambda: not any(is_blocked(thread, signal.SIGUSR2) for thread in takers), 10,
              "the handler that has taken it has ended")
    time.sleep(0.1)     # with TSan it is called only now
    job.send(signal.SIGUSR1)
    job.wait_state("paused")
    job.check_still()
    job.send(signal.SIGUSR2)
    job.wait_state("running")
    job.wait_steps(job.steps() + 3)
    finish_right(job)


def before_the_first_cuda_call():
    """The job does not die of the signal; it is held where it begins to use the GPU."""
    job = Job("counter", "--mib", MIB, "--start-line", 1, *ENDLESS)
    job.wait_line("before CUDA")
    job.send(signal.SIGUSR1)
    time.sleep(0.5)     # nobody answers to it yet
    check(not job.ended(), "the job died of the signal")
    job.tell()
    job.wait_state("paused")
    job.check_still()
    job.send(signal.SIGUSR2)
    job.wait_steps(5)
    finish_right(job)


def while_a_capture_is_open():
    args = ("--steps", 12, "--capture-ms", 200)
    native = Job("graph_stream", *args, mode="native").result()
    job = Job("graph_stream", *args)
    for captures, by in ((2, "command"), (6, "signal")):
        job.until(lambda n=captures: job.lines.count("capturing") >= n, 30, "a capture is open")
        job.pause(by)
        job.check_still(0.5)
        job.resume(by)
    equal(job.result(), native, "the output")


def handlers_of_the_program():
    """A program that takes the signals itself gets them too, where the user has named them."""
    job = Job("ctypes_job.py", "--steps", 200, "--step-ms", 10, "--tell-signals",
              env={"CUDAW_SIGNAL_PAUSE": "USR1", "CUDAW_SIGNAL_RESUME": "USR2"})
    job.wait_steps(3)
    job.pause("signal")
    job.resume("signal")
    output = job.result()
    for name in ("SIGUSR1", "SIGUSR2"):
        check(f"got {name}" in output, f"the program's own handler of {name} was not called")
    check("every step right" in output, "a step was wrong")


main(pausing_twice, resuming_a_running_job, a_burst_of_signals, before_the_first_cuda_call,
     while_a_capture_is_open, handlers_of_the_program)
