#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Requests that cross each other, and what the program does beside its work while it is paused."""
import os
import signal
import socket
import time

from simlib import not_by_tsan, paused_and_resumed
from gpulib import RUNTIME_DIR, Job, check, cudaw, equal, main


def connected(job):
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(20)
    client.connect(os.path.join(RUNTIME_DIR, f"{job.pid}.sock"))
    return client


def last_line(client):
    """The line that ends an answer, or what is there when none comes."""
    text = b""
    try:
        while chunk := client.recv(4096):
            text += chunk
    except socket.timeout:
        pass
    return (text.decode().splitlines() or ["nothing"])[-1]


def contrary_requests_at_once_are_both_answered():
    job = Job("counter", "--steps", 1000000, "--step-ms", 2)
    job.wait_steps(3)
    clients = [connected(job), connected(job)]
    time.sleep(0.2)
    job.send(signal.SIGSTOP)    # so that it finds both when it looks
    clients[0].send(b"resume\n")
    clients[1].send(b"pause\n")
    time.sleep(0.1)
    job.send(signal.SIGCONT)
    answers = [last_line(client) for client in clients]
    check(all(answer.startswith("end ") for answer in answers), f"the answers are {answers}")
    cudaw("resume", job.pid)
    job.finish()


def a_resume_ends_a_pause_that_still_waits():
    job = Job("spin", "--steps", 1000000, "--step-ms", 2)
    job.until(lambda: job.lines, 10, "spin has begun")
    client = connected(job)
    client.send(b"pause 60000\n")
    job.wait_state("pausing")
    equal(cudaw("resume", job.pid, timeout=10).returncode, 0, "the exit code of the resume")
    check(last_line(client).startswith("end busy"), "the pause was not told that it was cancelled")
    equal(job.state(), "running", "the state")
    job.discard()


def contexts_come_and_go_across_pauses():
    job = Job("churn", "--steps", 1000000, "--step-ms", 2)
    job.wait_steps(2)
    for _ in range(6):
        before = job.steps()
        paused_and_resumed(job)
        job.wait_steps(before + 3)
    job.finish()


def children_of_a_paused_process_exit():
    job = Job("churn", "--fork", 1, "--steps", 1000000, "--step-ms", 5)
    job.wait_steps(2)
    for _ in range(3):
        job.pause()
        before = job.steps()
        job.wait_steps(before + 10)
        job.resume()
    job.finish()


main(contrary_requests_at_once_are_both_answered,
     a_resume_ends_a_pause_that_still_waits,
     contexts_come_and_go_across_pauses,
     not_by_tsan(children_of_a_paused_process_exit))
