#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""rests.py SHAPE RANKS COUNT [TRANSPORT]: a job of processes whose kernels wait for each other in communicators
that cudaw knows is paused COUNT times. Half of the pauses come to rest within a step of the job
and 50 ms, none times out, and every rank verifies its result. SHAPE is one of tests/programs/rank_kernels.c: all
ranks share a GPU, and contexts stay there (see ranks.py). Or it is ddp, fsdp, tensor, stages or experts: a
training with PyTorch and NCCL, a GPU for each rank (or one for all: tests/programs/nccl_rank.py),
whose losses are those of a native run. NCCL takes TRANSPORT then: host (the default), cumem or ipc.
"""
import json
import os
import re
import statistics
import sys
import time

from gpulib import Job, Training, check, cudaw_ok, equal, figure, jobs, main, scratch

SHAPES = {"data_parallel": 0, "pipeline": 1, "tensor_and_data": 2, "graphs": 3, "one_communicator": 4,
          "pipeline_and_world": 5, "graphs_by_hand": 6}
SHAPE, RANKS, COUNT = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
STEP_MS = 10
LIMIT_MS = 50           # beyond a step
STEPS = 20 if SHAPE in SHAPES else 10   # a training has longer ones
TRANSPORT = (sys.argv[4:] or ["host"])[0]
TRAINING = ("nccl_training.py", "--kind", SHAPE, "--ranks", RANKS, "--transport", TRANSPORT)
SAYS = {"host": "SHM/", "cumem": "P2P/CUMEM", "ipc": "P2P/IPC"}     # NCCL, in its log


def states():
    return [row["state"] for row in jobs().values() if row["name"] == "rank_kernels"]


def drain_ms(text):
    """The longest that one of the processes took to come to rest."""
    return max(row["phases"]["drain"] for row in json.loads(text))


def step_ms_of(job, steps):
    start, first = time.monotonic(), job.steps()
    job.wait_steps(first + steps, timeout=60)
    return (time.monotonic() - start) * 1000 / (job.steps() - first)


def rest_often(job):
    job.until(lambda: len(states()) == RANKS, 120, "all ranks use CUDA")
    job.wait_steps(5, timeout=60)
    times, steps, soon = [], [], 0
    for i in range(COUNT):
        # Before each pause: how much of a processor the job gets changes in between.
        steps.append(step_ms_of(job, STEPS))
        time.sleep(i % 7 * steps[-1] / 7000)
        times.append(drain_ms(cudaw_ok("pause", "--release", "memory", "--json", "rank_kernels")))
        soon += times[-1] < steps[-1] + LIMIT_MS
        equal(states(), ["paused"] * RANKS, "the states after cudaw pause")
        cudaw_ok("resume", "rank_kernels")
    figure(f"step_{SHAPE}_{RANKS}", statistics.median(steps), "ms")
    figure(f"rest_{SHAPE}_{RANKS}_median", statistics.median(times), "ms")
    figure(f"rest_{SHAPE}_{RANKS}_most", max(times), "ms")
    # Half of them, since other programs of the machine may take a moment of any one. Stages that share a
    # communicator go by single launches.
    check(SHAPE == "one_communicator" or 2 * soon >= COUNT,
          f"{soon} of {COUNT} pauses came to rest in time: they took {[round(ms) for ms in times]} ms, and "
          f"the steps before them {[round(ms) for ms in steps]} ms")


def ranks_come_to_rest():
    job = Job("rank_kernels", "--ranks", RANKS, "--shape", SHAPES[SHAPE], "--steps", 100000000, "--step-ms",
              STEP_MS, name="rank_kernels")
    rest_often(job)
    check("every rank right" in job.finish(timeout=60), "not every rank verified its result")


def training_comes_to_rest():
    log = scratch(0o700)
    training = Training(*TRAINING, name="rank_kernels",
                        env={"NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": os.path.join(log, "nccl.%p")})
    rest_often(training.job)
    training.end_as_natively(f"after {COUNT} pauses")
    ways = set()
    for name in os.listdir(log):
        with open(os.path.join(log, name), encoding="utf-8") as file:
            ways |= set(re.findall(r" via (\S+)", file.read()))
    check(ways and all(way.startswith(SAYS[TRANSPORT]) for way in ways), f"NCCL went via {ways}")


main((f"{SHAPE} of {RANKS} ranks comes to rest {COUNT} times",
      ranks_come_to_rest if SHAPE in SHAPES else training_comes_to_rest))
