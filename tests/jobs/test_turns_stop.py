#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""SIGTSTP of a job that takes turns: cudawd takes all of its memory, and gives it back when it goes on."""
import signal

from simlib import is_stopped
from gpulib import check, equal, main
from harness import REPEATS, until
from lease import EVERYTHING
from daemonlib import member
from turnslib import FOREVER, counting, finish, on_gpu, rows, start_daemon, states, stop, take_turns


def one_process():
    """Nobody waits for its memory: it gives it all the same, and others get it when they come."""
    start_daemon()
    job = counting("first", 140, FOREVER, group=0)
    job.wait_steps(3)
    until(lambda: rows("first"), 10, "it has joined")
    stop(job, [job.pid])
    equal((states("first"), on_gpu("first")), (["paused"], 0), "its state, and its bytes on the GPU")
    other = counting("second", 200, FOREVER)
    other.wait_steps(5)
    job.send(signal.SIGCONT)
    take_turns([job, other], 3 * REPEATS)
    finish(other)
    finish(job)


def rescued():
    """A job that the stand-in for the daemon has continued, after SIGSTOP, and that has given its memory since."""
    job, lease = member("counter", "--mib", 32, "--verify", 1, "--steps", FOREVER, "--step-ms", 2)
    job.wait_steps(3)
    job.send(signal.SIGSTOP)
    job.until(lambda: is_stopped(job.pid), 10, "it is stopped")
    lease.send(f"yield {EVERYTHING}")
    lease.send("rescue")
    job.send(signal.SIGCONT)
    lease.until("stops")
    equal(lease.until("end"), "ok", "the end of the yield")
    return job, lease


def it_runs_in_its_turn(job, lease):
    job.check_still()
    lease.fill()
    job.wait_steps(job.steps() + 3)
    check("every word right" in job.finish(), "the job did not verify its memory")


def a_rescued_job_stops_again():
    job, lease = rescued()
    lease.send("stop")
    job.until(lambda: is_stopped(job.pid), 10, "it is stopped")
    job.send(signal.SIGCONT)
    lease.until("goes")
    it_runs_in_its_turn(job, lease)


def a_rescued_job_that_is_resumed_does_not_stop():
    """SIGCONT comes before it has been told to stop: the scheduler believes that it runs."""
    job, lease = rescued()
    job.send(signal.SIGCONT)
    lease.until("goes")
    lease.send("stop")
    it_runs_in_its_turn(job, lease)


main(one_process, a_rescued_job_stops_again, a_rescued_job_that_is_resumed_does_not_stop)
