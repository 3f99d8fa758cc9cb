#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs of several processes whose kernels wait for each other in communicators that cudaw knows."""
import json
import os
import signal
import statistics
import time

from simlib import SANITIZED, errors_of_cudaw
from gpulib import Job, check, cudaw_ok, equal, jobs, main, until

SHAPES = {"data_parallel": 0, "pipeline": 1, "tensor_and_data": 2, "graphs": 3, "pipeline_and_world": 5,
          "graphs_by_hand": 6}
CASES = (("data_parallel", 2), ("pipeline", 4), ("tensor_and_data", 4), ("graphs", 2), ("graphs_by_hand", 2),
         ("pipeline_and_world", 4), ("data_parallel", 16))
RESTS = 5 if SANITIZED else int(os.environ.get("RESTS", "20"))
STEP_MS = 10


def states():
    return [row["state"] for row in jobs().values() if row["name"] == "peers"]


def started(shape, ranks, *options):
    job = Job("peers", "--ranks", ranks, "--shape", SHAPES[shape], "--steps", 100000000, "--step-ms",
              STEP_MS, *options, name="peers")
    job.until(lambda: len(states()) == ranks, 60, "all ranks use CUDA")
    job.wait_steps(5)
    return job


def drain_ms(text):
    """The longest that one of the processes took to come to rest."""
    return max(row["phases"]["drain"] for row in json.loads(text))


def rest_often(shape, ranks):
    job = started(shape, ranks)
    start, first = time.monotonic(), job.steps()
    job.wait_steps(first + 20, timeout=60)
    step_ms = (time.monotonic() - start) * 1000 / (job.steps() - first)
    times, steps = [], []
    for i in range(RESTS):
        job.wait_steps(job.steps() + 1, timeout=60)
        time.sleep(i % 7 * STEP_MS / 7000)
        before = job.steps()
        times.append(drain_ms(cudaw_ok("pause", "--json", "peers")))
        steps.append(job.steps() - before)
        equal(states(), ["paused"] * ranks, "the states after cudaw pause")
        cudaw_ok("resume", "peers")
    print(f"# {shape}, {ranks} ranks: a step takes {step_ms:.1f} ms; at rest after "
          f"{statistics.median(times):.1f} ms in the median, {max(times):.1f} at the most; "
          f"{statistics.median(steps)} steps, {max(steps)} at the most", flush=True)
    check("every rank right" in job.finish(timeout=60), "not every rank verified its result")
    equal(errors_of_cudaw(job), [], "what cudaw said on stderr")
    # Half of them, since other programs of the machine may take a moment of any one.
    check(statistics.median(times) < 2 * step_ms + 100,
          f"half of the pauses took more than {statistics.median(times):.0f} ms to come to rest, and a "
          f"step takes {step_ms:.0f} ms")


def ranks_of_the_job():
    return [pid for pid, row in jobs().items() if row["name"] == "peers"]


def a_signal_to_a_rank_with_peers_is_refused():
    job = started("pipeline", 3)
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
    job = started("data_parallel", 1)
    os.kill(ranks_of_the_job()[0], signal.SIGUSR1)
    until(lambda: states() == ["paused"], 20, "it is paused")
    cudaw_ok("resume", "peers")
    check("every rank right" in job.finish(timeout=60), "not every rank verified its result")
    equal(errors_of_cudaw(job), [], "what cudaw said on stderr")


def a_signal_after_the_communicators_have_ended_pauses_one_process():
    job = started("data_parallel", 2, "--leave", 8)
    job.wait_steps(12, timeout=60)
    rank = ranks_of_the_job()[0]
    os.kill(rank, signal.SIGUSR1)
    until(lambda: jobs()[rank]["state"] == "paused", 20, "it is paused")
    cudaw_ok("resume", "peers")
    check("every rank right" in job.finish(timeout=60), "not every rank verified its result")
    equal(errors_of_cudaw(job), [], "what cudaw said on stderr")


def cases():
    for shape, ranks in CASES:
        yield f"{shape} of {ranks} ranks", lambda shape=shape, ranks=ranks: rest_often(shape, ranks)


main(a_signal_to_a_rank_with_peers_is_refused, a_signal_to_a_process_alone_pauses_it,
     a_signal_after_the_communicators_have_ended_pauses_one_process, *cases())
