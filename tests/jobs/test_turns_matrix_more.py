#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whoever ends or stops while a job of two processes gives or gets memory, and while an allocation waits."""
import os
import signal
import time
from types import SimpleNamespace

from simlib import SANITIZED, is_stopped
from gpulib import Job, cudaw, cudaw_ok, equal, main
from harness import until
from momentslib import (SIZE_MIB, gets_parts, gives_parts, hit, killed, one, pids,
                        short_silence, start_daemon, two_processes, until_silent, verify, wait_for)
from turnslib import CONTEXT_MIB, FOREVER, counting, events, members, started, take_turns

STOPPED_S = 1
MANY, ONE = 0, 1


# ---- a job of two processes, and one of one

def begin():
    daemon, jobs = start_daemon(), [two_processes("many"), one("one")]
    take_turns(jobs)
    return SimpleNamespace(daemon=daemon, jobs=jobs)


def one_is_killed(table):
    killed(table.jobs[ONE])
    take_turns(table.jobs[:1], 10)
    table.jobs[ONE] = one("one")


def the_daemon_is_killed(table):
    hit(table.daemon.pid, signal.SIGKILL)
    table.daemon.wait()
    table.daemon = start_daemon()
    until(lambda: len(members()) == 3, 10, "all have joined again")


def the_daemon_is_stopped(table):
    hit(table.daemon.pid, signal.SIGSTOP)
    time.sleep(STOPPED_S)
    table.daemon.send_signal(signal.SIGCONT)


def is_left_alone(name, pid):
    """It is stopped for so long."""
    before = len(events("silent", name))
    hit(pid, signal.SIGSTOP)
    until_silent(name, before)
    os.kill(pid, signal.SIGCONT)


def the_second_process_is_stopped(table):
    is_left_alone("many", pids(table.jobs[MANY])[1])


def one_is_stopped(table):
    is_left_alone("one", table.jobs[ONE].pid)


def with_two_processes(deed):
    def case():
        table = begin()
        for giver in (MANY,) if SANITIZED else (MANY, ONE):
            for moment in (gives_parts, gets_parts):
                print(f"# {'one' if giver else 'many'} gives, {moment.__name__}", flush=True)
                moment(table.jobs, table.jobs[giver])
                deed(table)
                take_turns(table.jobs, 1)
        table.jobs[MANY].finish()   # it looks at every word
        verify(table.jobs[ONE:])
    return f"two processes: {deed.__name__.replace('_', ' ')}", case


# ---- an allocation waits

LONG = ("--quantum", "60", "--idle", "60")


class Growing:
    """A job that has all but a little, and one of one or two processes of which one waits for more."""

    def __init__(self, processes):
        self.daemon = start_daemon(*LONG)
        self.has = counting("has", SIZE_MIB - (processes - 1) * CONTEXT_MIB, FOREVER)
        self.has.wait_steps(3)
        same = {"mode": "path", "CUDAW_JOB": "abc123", "CUDAW_NAME": "grows"}
        self.grows = [started("grows", "orders", **same) for _ in range(processes)]
        for job in self.grows:
            self.answers(job, "alloc 8", "ok")
        until(lambda: len(members()) == processes + 1, 10, "all have joined")
        self.asks()

    @staticmethod
    def answers(job, order, answer):
        lines = len(job.lines)
        job.process.stdin.write(f"{order}\n")
        job.until(lambda: f"{order.split()[0]}: {answer}" in job.lines[lines:], 20, f"{order}: {answer}")

    def asks(self):
        self.answered = len(self.grows[0].lines)
        self.grows[0].process.stdin.write("alloc 30\n")
        wait_for(self.grows[0], "waits")

    def hears(self, answer):
        self.grows[0].until(lambda: self.grows[0].lines[self.answered:] == [f"alloc: {answer}"], 20,
                            f"the allocation: {answer}")

    def waits_on(self):
        equal(self.grows[0].lines[self.answered:], [], "answers to an allocation that waits")

    def given(self):
        """The other one gives its turn."""
        cudaw_ok("yield", self.has.pid)
        self.hears("ok")

    def finish(self):
        for job in self.grows:
            self.answers(job, "check", "every word right")
            job.result()
        verify([self.has] if self.has in Job.alive else [])


def the_other_is_killed(table):
    killed(table.has)
    table.hears("ok")


def the_one_that_waits_is_killed(table):
    for job in table.grows:
        killed(job)
    table.grows = []


def its_daemon_is_killed(table):
    hit(table.daemon.pid, signal.SIGKILL)
    table.daemon.wait()
    start_daemon(*LONG)
    until(lambda: len(members()) == len(table.grows) + 1, 10, "all have joined again")
    wait_for(table.grows[0], "waits")
    table.waits_on()
    table.given()


def the_other_is_stopped(table):
    table.has.send(signal.SIGSTOP)
    until(lambda: is_stopped(table.has.pid), 10, "it is stopped")
    cudaw_ok("yield", table.has.pid)
    until_silent("has", 0)
    table.waits_on()
    table.has.send(signal.SIGCONT)
    until(lambda: len(events("joined", "has")) == 2, 10, "it has joined again")
    cudaw("yield", table.has.pid)   # it may have been asked for all of its memory already
    table.hears("ok")


def the_one_that_waits_is_stopped(table):
    table.grows[0].send(signal.SIGSTOP)
    until(lambda: is_stopped(table.grows[0].pid), 10, "it is stopped")
    cudaw_ok("yield", table.has.pid)
    until(lambda: events("gave", "has"), 10, "the other one gives memory")
    with short_silence():
        time.sleep(STOPPED_S)
    table.grows[0].send(signal.SIGCONT)
    table.hears("ok")


def its_daemon_is_stopped(table):
    the_daemon_is_stopped(table)
    table.given()


def while_an_allocation_waits(deed, processes):
    def case():
        table = Growing(processes)
        deed(table)
        table.finish()
    return f"an allocation of {processes} waits: {deed.__name__.replace('_', ' ')}", case


DEEDS = (the_other_is_killed, the_one_that_waits_is_killed, its_daemon_is_killed, the_other_is_stopped,
         the_one_that_waits_is_stopped, its_daemon_is_stopped)

main(*map(with_two_processes, (one_is_killed, the_daemon_is_killed, the_daemon_is_stopped,
                               the_second_process_is_stopped, one_is_stopped)),
     *(while_an_allocation_waits(deed, processes) for deed in (DEEDS[:3] if SANITIZED else DEEDS)
       for processes in (1, 2)))
