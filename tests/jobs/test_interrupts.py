#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Signals that a paused program handles, and its exit: its calls wait, and nothing saved is lost."""
import os
import signal

import simlib
from simlib import skipped
from gpulib import Job, check, equal, hog, main

LIMIT_S = 10    # for which a resume for a program's end, and a call of its exit, waits
EXITS, DIES, EXECUTES = 1, 2, 3     # --term
READ, FAILED = "read: right", "read: error 4"


def started(*args, **env):
    """TSan runs no handler in a thread that waits at the gate: another one runs them there, and allocates in them."""
    if simlib.TSAN:
        if "--thread" not in args:
            args += ("--thread", 3)
        env["TSAN_OPTIONS"] = os.environ["TSAN_OPTIONS"] + ":report_signal_unsafe=0"
    job = Job("interrupts", *args, "--steps", 100000000, "--step-ms", 10, env=env)
    job.wait_steps(3)
    return job


def paused(*args, **env):
    job = started(*args, **env)
    job.pause()
    return job


def told(job, sig):
    """Its handler runs at once. Whoever answers "ps" then has heard of the signal."""
    job.send(sig)
    job.wait_line(f"got {int(sig)}")


def says(job, line, count=1):
    equal(job.lines.count(line), count, f"how often it has said '{line}'")


def ends_well(job):
    check("every byte right" in job.finish(), "the job did not verify its memory")


def a_pause_outlives(sig):
    """Also if another has the GPU: nobody has asked for the memory."""
    job = paused("--reads", 1)
    other, _ = hog()
    told(job, sig)
    equal(job.state(), "paused", "the state after the signal")
    says(job, READ, 0)
    other.discard()
    equal(job.state(), "paused", "the state once there is memory")
    simlib.cudaw("resume", job.pid)
    job.until(lambda: READ in job.lines, 30, "its handler has read")
    if sig == signal.SIGINT:
        check("every byte right" in job.result(), "the job did not verify its memory")
    else:
        ends_well(job)


def a_resume_that_waits_outlives_signals():
    job = paused("--reads", 2)
    other, _ = hog()
    job.send(signal.SIGUSR2)
    job.wait_state("waiting")
    for sig in (signal.SIGHUP, signal.SIGTERM):
        told(job, sig)
        equal(job.state(), "waiting", f"the state after {sig.name}")
    other.discard()
    job.until(lambda: job.lines.count(READ) == 2, 30, "both handlers have read")
    ends_well(job)


def sigterm_asks_for_the_memory():
    job = paused("--reads", 1)
    other, _ = hog()
    told(job, signal.SIGTERM)
    job.wait_state("waiting")
    other.discard()
    job.wait_line(READ)
    job.wait_state("running")
    ends_well(job)


def a_later_pause_wins():
    job = paused("--reads", 1)
    other, _ = hog()
    told(job, signal.SIGTERM)
    job.wait_state("waiting")
    job.pause()
    other.discard()
    equal(job.state(), "paused", "the state once there is memory")
    says(job, READ, 0)
    job.resume()
    ends_well(job)


def one_shot_handlers():
    """The second signal finds no handler."""
    for sig in (signal.SIGINT, signal.SIGTERM):
        job = paused("--once", 1)
        other, _ = hog()
        told(job, sig)
        job.send(sig)
        equal(job.wait_end(), -sig, "its exit status")
        job.discard()
        other.discard()


def a_thread_that_takes_the_signal():
    """It is the program's alone."""
    job = paused("--thread", 2)
    told(job, signal.SIGTERM)
    equal(job.state(), "paused", "the state after the signal")
    says(job, READ, 0)
    job.resume()
    job.wait_line(READ)
    ends_well(job)


def other_ends_of_a_handler():
    for how, status in ((DIES, 8), (EXECUTES, 9)):
        job = paused("--term", how)
        other, _ = hog()
        job.send(signal.SIGTERM)
        equal(job.wait_end(), status, "its exit status")
        job.discard()
        other.discard()


def an_exit_that_calls_nothing_is_not_held_up():
    """Nothing asks for the memory that its resume waits for."""
    job = paused("--term", EXITS)
    hog()
    job.send(signal.SIGTERM)
    equal(job.wait_end(LIMIT_S / 2), 7, "its exit status")


def go_on(job):
    job.process.stdin.write("x")
    job.process.stdin.flush()


def in_exit(job):
    """Called by a thread beside the one that waits in a call."""
    go_on(job)
    job.wait_line("exits")


def an_exit_waits_for_a_resume():
    for by in ("command", "signal"):
        job = paused("--exits", 2, "--thread", 1)
        in_exit(job)
        equal(job.state(), "paused", "the state while it exits")
        says(job, READ, 0)
        if by == "command":
            job.resume()
        else:
            job.send(signal.SIGUSR2)
        go_on(job)
        equal(job.wait_end(), 3, "its exit status")
        says(job, READ, 2)
        job.discard()


def an_exit_in_a_handler_gets_memory():
    """The handler has asked for it."""
    job = paused("--exits", 1, "--term", EXITS)
    other, _ = hog()
    job.send(signal.SIGTERM)
    job.wait_line("exits")
    job.wait_state("waiting")
    other.discard()
    equal(job.wait_end(), 7, "its exit status")
    says(job, READ)


def without_memory_nothing_is_lost():
    """The resume is given up, and single calls of an exit fail; a later resume has all."""
    first, second = paused("--reads", 1), paused("--exits", 2, "--thread", 1)
    other, _ = hog()
    in_exit(second)
    told(first, signal.SIGTERM)
    first.wait_state("waiting")
    first.wait_state("paused", 3 * LIMIT_S)
    check("the job stays paused" in first.status()["reason"], f"its reason is {first.status()['reason']!r}")
    second.wait_line(FAILED, 3 * LIMIT_S)
    equal(second.state(), "paused", "the state after a call has failed")
    says(first, READ, 0)
    other.discard()
    second.resume()
    go_on(second)
    equal(second.wait_end(), 3, "its exit status")
    says(second, FAILED)
    says(second, READ)
    first.resume()
    first.wait_line(READ)
    ends_well(first)


KEPT = (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1)
if simlib.TSAN:
    a_resume_that_waits_outlives_signals = skipped(
        a_resume_that_waits_outlives_signals, "TSan runs no second handler while the first one waits in a call")

main(*((f"a pause outlives {sig.name}", lambda sig=sig: a_pause_outlives(sig)) for sig in KEPT),
     a_resume_that_waits_outlives_signals, sigterm_asks_for_the_memory, a_later_pause_wins, one_shot_handlers,
     a_thread_that_takes_the_signal, other_ends_of_a_handler, an_exit_that_calls_nothing_is_not_held_up,
     an_exit_waits_for_a_resume, an_exit_in_a_handler_gets_memory, without_memory_nothing_is_lost)
