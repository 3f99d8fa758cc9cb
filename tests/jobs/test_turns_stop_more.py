#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The same as test_turns_stop.py, of jobs of several processes, and of one that its user has paused."""
import os
import signal

import simlib  # noqa: F401
from gpulib import check, equal, main
from turnslib import (FOREVER, counting, finish, members, on_gpu, ranks, rows, start_daemon, states, stop,
                      take_turns)


def several(program, *args):
    """Whichever of the processes is signalled: all are out."""
    start_daemon()
    many = ranks("many", program, 2, *args, group=0)
    many.wait_steps(3)
    one = counting("one", 200, FOREVER)
    pids = sorted(row["pid"] for row in rows("many"))
    for chosen in (pids[:1], pids[1:], pids):
        take_turns([many, one])
        stop(many, chosen)
        equal((states("many"), on_gpu("many")), (["paused"] * 2, 0), "their states, and bytes on the GPU")
        take_turns([one], 20)
        for pid in chosen:
            os.kill(pid, signal.SIGCONT)
    take_turns([many, one])
    finish(one)
    many.finish()


def processes_that_share_memory():
    several("sharing", "--objects", 4, "--mib", 8, "--ballast", 40)


def processes_that_wait_for_each_other():
    several("rank_kernels", "--ballast", 60)


def the_user_had_paused_it():
    start_daemon()
    job, other = counting("first", 140, FOREVER, group=0), counting("second", 140, FOREVER)
    take_turns([job, other])
    job.pause()
    stop(job, [job.pid])
    take_turns([other], 20)
    job.send(signal.SIGCONT)
    job.wait_state("paused")
    job.check_still()
    job.resume()
    take_turns([job, other])
    check(members()[job.pid]["turns"], "it had a turn")
    finish(other)
    finish(job)


main(processes_that_share_memory, processes_that_wait_for_each_other, the_user_had_paused_it)
