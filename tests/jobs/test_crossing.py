#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Requests that cross each other, and what the program does beside its work while it is paused."""
import os
import signal
import socket
import time

from simlib import is_stopped, paused_and_resumed, waits_for_memory
from gpulib import RUNTIME_DIR, Job, check, cudaw, cudaw_ok, equal, main, until


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


def counter():
    job = Job("counter", "--steps", 1000000, "--step-ms", 10)
    job.wait_steps(3)
    return job


def draining():
    """A job whose kernel does not end, and a client that has asked it to pause."""
    job = Job("spin", "--steps", 1000000, "--step-ms", 10)
    job.until(lambda: job.lines, 10, "spin has begun")
    client = connected(job)
    client.send(b"pause 60000\n")
    job.wait_state("pausing")
    return job, client


def requested(job, *requests):
    """Send them so that the job finds all when it looks; returns their clients, in that order."""
    clients = [connected(job) for _ in requests]
    job.state()     # an answer to a later connection
    job.send(signal.SIGSTOP)
    until(lambda: is_stopped(job.pid), 10, "the job is stopped")
    for client, request in zip(clients, requests):
        client.send(request)
    job.send(signal.SIGCONT)
    return clients


def a_resume_continues_a_job_that_was_stopped_by_a_signal():
    job = counter()
    job.send(signal.SIGSTOP)
    until(lambda: is_stopped(job.pid), 10, "the job is stopped")
    equal(cudaw_ok("resume", job.pid),
          f"continued {job.pid}: it was stopped by a signal, not paused\n", "what is printed")
    steps = job.steps()
    job.wait_steps(steps + 2)
    job.send(signal.SIGUSR1)
    job.wait_state("paused")
    job.send(signal.SIGSTOP)
    until(lambda: is_stopped(job.pid), 10, "the paused job is stopped")
    check(cudaw_ok("resume", job.pid).startswith(f"resumed {job.pid}: "), "it was paused")
    job.finish()


def contrary_requests_at_once_are_both_answered():
    job = counter()
    answers = [last_line(client) for client in requested(job, b"pause\n", b"resume\n")]
    check(all(answer.startswith("end ") for answer in answers), f"the answers are {answers}")
    cudaw("resume", job.pid)
    job.finish()


def what_was_cancelled_is_done_when_asked_for_again():
    """Though what was cancelled has not ended by then."""
    job, first = draining()
    clients = requested(job, b"resume\n", b"pause 2000\n")
    check(last_line(clients[1]).startswith("end timeout"), "the second pause was not tried")
    check(last_line(clients[0]).startswith("end busy superseded by a later"), "the resume was not answered")
    check(last_line(first).startswith("end "), "the first pause was not answered")
    equal(job.state(), "running", "the state")
    job.discard()

    job = counter()
    other = waits_for_memory(job)
    time.sleep(1)       # it looks for memory less often then
    clients = requested(job, b"pause\n", b"resume\n")
    check(last_line(clients[0]).startswith("end busy superseded by a later"), "the pause was not answered")
    job.wait_state("waiting")
    other.discard()
    equal(last_line(clients[1]), "end ok", "the answer to the second resume")
    equal(job.state(), "running", "the state")
    check("every word right" in job.finish(), "the job did not verify its memory")


def a_hold_that_is_broken_off_leaves_the_job_running():
    """The client aborts what it has asked for, and is gone at once."""
    job = counter()
    for _ in range(5):
        client = connected(job)
        client.send(b"hold 60000\n")
        until(lambda: b"held " in client.recv(4096), 10, "it is held")
        client.send(b"abort\n")
        client.close()
        job.wait_state("running")
        job.wait_steps(job.steps() + 3)
    check("every word right" in job.finish(), "the job did not verify its memory")


def a_resume_ends_a_pause_that_still_waits():
    job, client = draining()
    equal(cudaw("resume", job.pid, timeout=10).returncode, 0, "the exit code of the resume")
    check(last_line(client).startswith("end busy"), "the pause was not told that it was cancelled")
    equal(job.state(), "running", "the state")
    job.discard()


def contexts_come_and_go_across_pauses():
    job = Job("churn", "--steps", 1000000, "--step-ms", 10)
    job.wait_steps(2)
    for _ in range(6):
        before = job.steps()
        paused_and_resumed(job)
        job.wait_steps(before + 3)
    job.finish()


def children_of_a_paused_process_exit():
    job = Job("churn", "--fork", 1, "--steps", 1000000, "--step-ms", 10)
    job.wait_steps(2)
    for _ in range(3):
        job.pause()
        before = job.steps()
        job.wait_steps(before + 10)
        job.resume()
    job.finish()


main(a_resume_continues_a_job_that_was_stopped_by_a_signal,
     contrary_requests_at_once_are_both_answered,
     what_was_cancelled_is_done_when_asked_for_again,
     a_hold_that_is_broken_off_leaves_the_job_running,
     a_resume_ends_a_pause_that_still_waits,
     contexts_come_and_go_across_pauses,
     children_of_a_paused_process_exit)
