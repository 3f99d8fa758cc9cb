#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whoever ends or stops, at each moment of a hand-over: the others go on, and every word is right."""
import contextlib
import itertools
import os
import signal
import tempfile
import time
from types import SimpleNamespace

from simlib import MIB, SANITIZED, is_stopped, let_all_go, process_used
from gpulib import Job, Skip, check, main
from harness import Failure, until
from lease import EVERYTHING, Lease
from momentslib import (ALLOCS, FREE_MIB, MARGIN_MIB, MOMENTS, SIZE_MIB, WHOLE_MIB, gets_parts,
                        gives_parts, hit, killed, one, quick, start_daemon, state, the_other_runs, until_silent,
                        verify)
from turnslib import FOREVER, counting, events, members, take_turns

STOPPED_S = 1
numbers = itertools.count(1)


def next_job():
    job = one(f"job{next(numbers)}")
    job.wait_steps(1)
    return job


def begin(*options):
    """Two jobs that take turns, and their daemon."""
    table = SimpleNamespace(daemon=start_daemon(*options), jobs=[next_job(), next_job()])
    take_turns(table.jobs)
    return table


def is_killed(table, job, other):
    table.jobs.remove(job)
    killed(job)
    take_turns([other], 10)
    table.jobs.append(next_job())


def the_giver_is_killed(table, giver, getter):
    is_killed(table, giver, getter)


def the_getter_is_killed(table, giver, getter):
    is_killed(table, getter, giver)


def one_goes_on(jobs):
    """Without a daemon; returns which."""
    steps = {job: job.steps() for job in jobs}
    return until(lambda: next((job for job in jobs if job.steps() > steps[job] + 3), None), 15,
                 "one of the jobs goes on")


def the_daemon_is_killed(table, _giver, _getter):
    hit(table.daemon.pid, signal.SIGKILL)
    table.daemon.wait()
    one_goes_on(table.jobs)
    table.daemon = start_daemon()
    until(lambda: len(members()) == 2, 10, "both have joined again")


def is_left_alone(job):
    """It is stopped for so long."""
    before = len(events("silent", job.name))
    hit(job.pid, signal.SIGSTOP)
    until_silent(job.name, before)


def the_giver_is_stopped(_table, giver, getter):
    is_left_alone(giver)
    giver.send(signal.SIGCONT)


def the_getter_is_stopped(_table, _giver, getter):
    is_left_alone(getter)
    getter.send(signal.SIGCONT)


def the_daemon_is_stopped(table, _giver, _getter):
    hit(table.daemon.pid, signal.SIGSTOP)
    time.sleep(STOPPED_S)
    table.daemon.send_signal(signal.SIGCONT)


def at_each_moment(deed):
    def case():
        table = begin()
        for moment in MOMENTS[1:2] if SANITIZED else MOMENTS:
            print(f"# {moment.__name__}", flush=True)
            deed(table, *moment(table.jobs))
            take_turns(table.jobs, 1)
        verify(table.jobs)
    return deed.__name__.replace("_", " "), case


def others_run_while_one_is_stopped():
    """What one that is out has on the GPU stays there, and the rest is for the others."""
    table = begin()
    for _ in range(20):
        giver, getter = the_other_runs(table.jobs)
        before = len(events("silent", giver.name))
        giver.send(signal.SIGSTOP)
        giver.until(lambda pid=giver.pid: is_stopped(pid), 5, "it is stopped")
        if process_used(giver.pid) + WHOLE_MIB <= FREE_MIB - MARGIN_MIB:
            break
        giver.send(signal.SIGCONT)      # its next turn had begun
    else:
        raise Failure("each time that a job was stopped its next turn had begun")
    until_silent(giver.name, before, lambda: state(getter) == "runs")
    take_turns([getter], 20)
    giver.send(signal.SIGCONT)
    verify(table.jobs)


def the_daemon_hangs():
    """For longer than the jobs wait for it. Then it is no longer theirs, and they join it again."""
    table = begin()
    giver, getter = gets_parts(table.jobs)
    hit(table.daemon.pid, signal.SIGSTOP)
    until(lambda: "the job goes on without it" in giver.stderr() + getter.stderr(), 20, "they give it up")
    one_goes_on(table.jobs)
    table.daemon.send_signal(signal.SIGCONT)
    verify(table.jobs)


def removed(path):
    try:
        os.rmdir(path)
        return True
    except OSError:
        return False


def two_are_partly_out_without_a_daemon():
    """There is room for what either of them lacks only if the other one gives what it has."""
    jobs = [counting("first", SIZE_MIB, FOREVER, ALLOCS)]
    jobs[0].wait_steps(1)
    leases = [Lease(jobs[0])]
    leases[0].take(EVERYTHING)
    jobs.append(counting("second", SIZE_MIB, FOREVER, ALLOCS))
    jobs[1].wait_steps(1)
    leases.append(Lease(jobs[1]))
    leases[1].take(8 * MIB)
    leases[0].send(f"room {38 * MIB}")
    while int(leases[0].until("mapped")) < 34 * MIB:    # what comes next does not fit
        pass
    have = [process_used(job.pid) for job in jobs]
    for job, lease, mine in zip(jobs, leases, have):
        check(WHOLE_MIB - mine > FREE_MIB - sum(have), f"{job.name} has room for what it lacks: {have}")
        lease.hang_up()
    first = one_goes_on(jobs)
    for job in sorted(jobs, key=lambda job: job is not first):
        job.wait_steps(job.steps() + 3)
        check("every word right" in job.finish(), f"{job.name} did not verify its memory")


@contextlib.contextmanager
def group():
    """A group of cgroup v2."""
    with open("/proc/mounts", encoding="utf-8") as file:
        mounts = [line.split()[1] for line in file if line.split()[2] == "cgroup2"]
    for mount in mounts:
        try:
            path = tempfile.mkdtemp(prefix="cudaw-test-", dir=mount)
        except OSError:
            continue
        try:
            yield path
        finally:
            for job in list(Job.alive):
                job.discard()
            until(lambda: removed(path), 10, "the group is empty")
        return
    raise Skip("no group of cgroup v2 can be made here")


def write(path, text):
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def the_giver_is_frozen():
    """A process that is frozen does not look stopped."""
    with group() as path:
        table = begin()
        giver, _ = gives_parts(table.jobs)
        before = len(events("silent", giver.name))
        write(f"{path}/cgroup.procs", str(giver.pid))
        write(f"{path}/cgroup.freeze", "1")
        let_all_go()
        until_silent(giver.name, before)
        write(f"{path}/cgroup.freeze", "0")
        verify(table.jobs)


main(*map(at_each_moment, (the_giver_is_killed, the_getter_is_killed, the_daemon_is_killed,
                           the_giver_is_stopped, the_getter_is_stopped, the_daemon_is_stopped)),
     two_are_partly_out_without_a_daemon,
     *map(quick, (others_run_while_one_is_stopped, the_daemon_hangs, the_giver_is_frozen)))
