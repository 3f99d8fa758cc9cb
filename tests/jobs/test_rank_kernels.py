#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs of several processes whose kernels wait for each other in communicators that cudaw knows."""
import os
import re
import signal
import socket
import time

from simlib import SANITIZED, TSAN, errors_of_cudaw, shared
from gpulib import PATIENCE, RUNTIME_DIR, Job, check, cudaw, cudaw_ok, equal, jobs, main, until

# Of tests/programs/rank_kernels.c.
DATA, PIPELINE = 0, 1
UNSUPPORTED = 6     # the exit code of cudaw pause
RESTS = 5 if SANITIZED else 20
# Beyond a step: 50 ms on a GPU. Here the processors that run the kernels are busy with other tests, too.
LIMIT_MS = 50 * PATIENCE
SHAPES = (("data_parallel", 2), ("pipeline", 4), ("tensor_and_data", 4), ("graphs", 2), ("graphs_by_hand", 2),
          ("pipeline_and_world", 4), ("one_communicator", 4), ("one_communicator", 8), ("data_parallel", 16))


def states():
    return [row["state"] for row in jobs().values() if row["name"] == "rank_kernels"]


def started(shape, ranks, *options):
    job = Job("rank_kernels", "--ranks", ranks, "--shape", shape, "--steps", 100000000, "--step-ms", 10, *options,
              name="rank_kernels")
    job.until(lambda: len(states()) == ranks, 60, "all ranks use CUDA")
    job.wait_steps(5, timeout=60)
    return job


def ranks_of_the_job():
    return [pid for pid, row in jobs().items() if row["name"] == "rank_kernels"]


def a_signal_to_a_rank_with_peers_is_refused():
    job = started(PIPELINE, 3)
    for rank in ranks_of_the_job():
        said = len(errors_of_cudaw(job))
        os.kill(rank, signal.SIGUSR1)
        until(lambda: len(errors_of_cudaw(job)) > said, 20, "it is refused")
        equal(states(), ["running"] * 3, "the states after a signal")
        line = errors_of_cudaw(job)[-1]
        check(f"[{rank}]" in line and "(a communicator of " in line and "'cudaw pause rank_kernels'" in line,
              f"it said {line!r}")
    equal(len(errors_of_cudaw(job)), 3, "lines on stderr")
    cudaw_ok("pause", "--release", "memory", "rank_kernels")
    os.kill(ranks_of_the_job()[0], signal.SIGUSR1)
    time.sleep(0.2)
    equal(states(), ["paused"] * 3, "the states of paused ranks after a signal")
    cudaw_ok("resume", "rank_kernels")
    says_its_ranks()
    check("every rank right" in job.finish(timeout=60), "not every rank verified its result")


def says_its_ranks():
    """Each stage, of its pairs: it has read them in the pause before."""
    clients = {pid: asked_to_hold(pid) for pid in ranks_of_the_job()}
    for pid, (client, text) in clients.items():
        stage = int(re.search(r"--rank (\d)", jobs()[pid]["command"])[1])
        said = re.findall(rb" \d:2:\d+:(\d)s", text)
        equal(said, [[b"0"], [b"1", b"0"], [b"1"]][stage], f"the ranks of stage {stage}")
        client.close()
    until(lambda: states() == ["running"] * 3, 20, "they run on")


def refused(job, state):
    """A full release, since the ranks wait for each other on the same GPU."""
    done = cudaw("pause", "--release", "all", "rank_kernels")
    equal(done.returncode, UNSUPPORTED, "the exit code of cudaw pause")
    ranks = sorted(ranks_of_the_job())
    for rank, other in zip(ranks, reversed(ranks)):
        line = next((line for line in done.stderr.splitlines() if f" {rank} (rank_kernels): " in line), "")
        check(f"process {other} wait for other processes" in line and "--release memory" in line,
              f"cudaw pause says {done.stderr!r}")
    equal(states(), [state] * 2, "the states after it")


def contexts_of_ranks_that_share_a_gpu_are_not_released():
    job = started(DATA, 2)
    refused(job, "running")
    cudaw_ok("pause", "--release", "memory", "rank_kernels")
    refused(job, "paused")
    cudaw_ok("resume", "rank_kernels")
    check("every rank right" in job.finish(timeout=60), "not every rank verified its result")


def a_signal_to_a_process_alone_pauses_it():
    job = started(DATA, 1)
    os.kill(ranks_of_the_job()[0], signal.SIGUSR1)
    until(lambda: states() == ["paused"], 20, "it is paused")
    cudaw_ok("resume", "rank_kernels")
    check("every rank right" in job.finish(timeout=60), "not every rank verified its result")
    equal(errors_of_cudaw(job), [], "what cudaw said on stderr")


def a_signal_after_the_communicators_have_ended_pauses_one_process():
    job = started(DATA, 2, "--leave", 8)
    job.wait_steps(12, timeout=60)
    # The one that says its steps: the other one may not have come so far.
    rank = next(pid for pid, row in jobs().items() if "--rank 0 " in row["command"])
    os.kill(rank, signal.SIGUSR1)
    until(lambda: jobs()[rank]["state"] == "paused", 20, "it is paused")
    cudaw_ok("resume", "rank_kernels")
    check("every rank right" in job.finish(timeout=60), "not every rank verified its result")
    equal(errors_of_cudaw(job), [], "what cudaw said on stderr")


def asked_to_hold(pid):
    """A connection to one rank, which is held, and what it said."""
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(20)
    client.connect(os.path.join(RUNTIME_DIR, f"{pid}.sock"))
    client.sendall(b"hold 60000\n")
    return client, heard(client, b"held ")


def held(pid):
    return asked_to_hold(pid)[0]


def heard(client, words):
    """What is said until a line with @words."""
    text = b""
    while words not in text:
        part = client.recv(4096)
        check(part, f"{words} was not said, but {text}")
        text += part
    return text


def a_rank_on_its_way_to_targets_runs_on_when_the_command_dies():
    job = started(DATA, 2)
    clients = [held(pid) for pid in ranks_of_the_job()]
    for client in clients:
        client.sendall(b"reach 1 1:1000000\n")
    job.wait_steps(job.steps() + 5, timeout=60)
    equal(states(), ["pausing"] * 2, "the states on the way")
    # A later order takes the place of the first, which it has passed.
    clients[0].sendall(b"reach 2 1:1\n")
    check(b"comms 1:" in heard(clients[0], b" 0 2\n"), "it did not say its counts")
    clients[0].sendall(b"reach 3 1:1000000\n")
    job.wait_steps(job.steps() + 5, timeout=60)
    for client in clients:
        client.close()
    until(lambda: states() == ["running"] * 2, 20, "they run on")
    check("every rank right" in job.finish(timeout=60), "not every rank verified its result")


def a_signal_to_a_rank_that_is_held_is_refused():
    """It stays held, as the others may wait for its kernels. Later nobody but the signal wants its pause."""
    job = started(DATA, 2)
    clients = {pid: asked_to_hold(pid) for pid in ranks_of_the_job()}
    # The one that is behind, if one is, could be paused at once.
    rank = max(clients, key=lambda pid: b"held drained" in clients[pid][1])
    os.kill(rank, signal.SIGUSR1)
    time.sleep(0.5)
    equal(states(), ["pausing"] * 2, "the states after the signal")
    for client, _ in clients.values():
        client.close()
    until(lambda: errors_of_cudaw(job), 20, "the signal is refused")
    check("'cudaw pause rank_kernels'" in errors_of_cudaw(job)[0], f"it said {errors_of_cudaw(job)}")
    until(lambda: states() == ["running"] * 2, 20, "they run on")
    check("every rank right" in job.finish(timeout=60), "not every rank verified its result")


def orders_that_are_none_end_the_hold():
    job = started(DATA, 2)
    for order in (b"reach\n", b"reach 0 1:1\n", b"reach 1\n", b"reach 1 1\n", b"reach 1 1:x\n",
                  b"reach 1" + b" 1:1" * 65 + b"\n"):
        with held(ranks_of_the_job()[0]) as client:
            client.sendall(order)
            heard(client, b"end invalid")
        until(lambda: states() == ["running"] * 2, 20, "they run on")
    check("every rank right" in job.finish(timeout=60), "not every rank verified its result")


main(a_signal_to_a_rank_with_peers_is_refused, contexts_of_ranks_that_share_a_gpu_are_not_released,
     a_signal_to_a_process_alone_pauses_it,
     a_signal_after_the_communicators_have_ended_pauses_one_process,
     a_rank_on_its_way_to_targets_runs_on_when_the_command_dies,
     a_signal_to_a_rank_that_is_held_is_refused, orders_that_are_none_end_the_hold,
     *(case for shape, ranks in SHAPES for case in shared("rests.py", shape, ranks, RESTS,
                                                               LIMIT_MS=LIMIT_MS)),
     # Under TSan two processors do not run 16 stages, one send after the other, within the pause's 30 s.
     *([] if TSAN else shared("rests.py", "one_communicator", 16, RESTS // 4, LIMIT_MS=LIMIT_MS)))
