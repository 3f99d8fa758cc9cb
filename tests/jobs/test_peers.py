#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs of several processes whose kernels wait for each other in communicators that cudaw knows."""
import os
import signal
import time

from simlib import SANITIZED, errors_of_cudaw, shared
from gpulib import Job, check, cudaw_ok, equal, jobs, main, until

# Of tests/programs/peers.c.
DATA, PIPELINE = 0, 1
RESTS = 5 if SANITIZED else 20
SHAPES = (("data_parallel", 2), ("pipeline", 4), ("tensor_and_data", 4), ("graphs", 2), ("graphs_by_hand", 2),
          ("pipeline_and_world", 4), ("data_parallel", 16))


def states():
    return [row["state"] for row in jobs().values() if row["name"] == "peers"]


def started(shape, ranks, *options):
    job = Job("peers", "--ranks", ranks, "--shape", shape, "--steps", 100000000, "--step-ms", 10, *options,
              name="peers")
    job.until(lambda: len(states()) == ranks, 60, "all ranks use CUDA")
    job.wait_steps(5, timeout=60)
    return job


def ranks_of_the_job():
    return [pid for pid, row in jobs().items() if row["name"] == "peers"]


def a_signal_to_a_rank_with_peers_is_refused():
    job = started(PIPELINE, 3)
    for rank in ranks_of_the_job():
        said = len(errors_of_cudaw(job))
        os.kill(rank, signal.SIGUSR1)
        until(lambda: len(errors_of_cudaw(job)) > said, 20, "it is refused")
        equal(states(), ["running"] * 3, "the states after a signal")
        line = errors_of_cudaw(job)[-1]
        check(f"[{rank}]" in line and "(a communicator of " in line and "'cudaw pause peers'" in line,
              f"it said {line!r}")
    equal(len(errors_of_cudaw(job)), 3, "lines on stderr")
    cudaw_ok("pause", "peers")
    os.kill(ranks_of_the_job()[0], signal.SIGUSR1)
    time.sleep(0.2)
    equal(states(), ["paused"] * 3, "the states of paused ranks after a signal")
    cudaw_ok("resume", "peers")
    check("every rank right" in job.finish(timeout=60), "not every rank verified its result")


def a_signal_to_a_process_alone_pauses_it():
    job = started(DATA, 1)
    os.kill(ranks_of_the_job()[0], signal.SIGUSR1)
    until(lambda: states() == ["paused"], 20, "it is paused")
    cudaw_ok("resume", "peers")
    check("every rank right" in job.finish(timeout=60), "not every rank verified its result")
    equal(errors_of_cudaw(job), [], "what cudaw said on stderr")


def a_signal_after_the_communicators_have_ended_pauses_one_process():
    job = started(DATA, 2, "--leave", 8)
    job.wait_steps(12, timeout=60)
    rank = ranks_of_the_job()[0]
    os.kill(rank, signal.SIGUSR1)
    until(lambda: jobs()[rank]["state"] == "paused", 20, "it is paused")
    cudaw_ok("resume", "peers")
    check("every rank right" in job.finish(timeout=60), "not every rank verified its result")
    equal(errors_of_cudaw(job), [], "what cudaw said on stderr")


main(a_signal_to_a_rank_with_peers_is_refused, a_signal_to_a_process_alone_pauses_it,
     a_signal_after_the_communicators_have_ended_pauses_one_process,
     *(case for shape, ranks in SHAPES for case in shared("rests.py", shape, ranks, RESTS)))
