#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""SIGTSTP of a job that takes turns: cudawd takes all of its memory, and gives it back when it goes on."""
import signal

import simlib  # noqa: F401
from gpulib import equal, main
from harness import until
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
    other.wait_steps(20)
    job.send(signal.SIGCONT)
    take_turns([job, other], 10)
    finish(other)
    finish(job)


main(one_process)
