#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for jobs that Slurm stops while they are to give their memory: cudawd continues them, or leaves them."""
import contextlib
import json
import os
import signal

from clilib import BUILD, Directory, cudaw, equal, main
from harness import until
from memberlib import MIB, Daemon, Member, connected_by_another

SIZE = 600 * MIB    # two do not fit


def said(kind):
    """What cudawd said of this kind."""
    result = cudaw("events", "--json")
    equal((result.code, result.err), (0, ""))
    return [event for event in map(json.loads, result.out.splitlines()) if event["event"] == kind]


def state_of(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        return file.read().rpartition(") ")[2][0]


@contextlib.contextmanager
def stopped(*options, **env):
    """A daemon, and a member that is stopped below slurmstepd when it is to give its memory, and its PID."""
    daemon = Daemon(Directory(), "--quantum", "0.2", *options, **env)
    with open("/proc/self/comm", "w", encoding="ascii") as file:
        file.write("slurmstepd")
    with connected_by_another(daemon.path, os.geteuid()) as (connection, pid):
        member = Member(daemon, SIZE, "low", obeys=False, connection=connection)
        member.wait("welcome")
        os.kill(pid, signal.SIGSTOP)
        until(lambda: state_of(pid) == "T", 10, "it is stopped")
        Member(daemon, SIZE, "high", state="waiting", mapped=0)
        member.wait_turn("yield")
        yield daemon, member, pid


def test_one_that_stops_again_and_again_is_left_alone():
    with stopped("--rescue", "0.01") as (daemon, member, pid):
        member.wait("rescue")

        def is_left_alone():
            os.kill(pid, signal.SIGSTOP)
            daemon.passes(5)
            return said("silent")
        until(is_left_alone, 30, "it is left alone")
        equal(len(said("rescued")), 1, "how often it is said that it goes on")


def test_none_is_continued_before_the_delay():
    with stopped("--rescue", "3600") as (daemon, member, pid):
        daemon.passes(30)
        until(lambda: said("silent"), 30, "it is left alone")
        equal((member.count("rescue"), state_of(pid)), (0, "T"), "what it has heard, and its state")


def test_one_that_cannot_be_continued_is_told_nothing():
    """When Slurm resumed it, it would believe that it is to stop again."""
    preload = {"LD_PRELOAD": f"{BUILD}/tests/preload/nosignal.so", "CUDAW_LOG": "warn",
               "ASAN_OPTIONS": "verify_asan_link_order=0"}
    with stopped("--rescue", "0.01", **preload) as (daemon, member, _):
        daemon.passes(30)
        until(lambda: said("silent"), 30, "it is left alone")
        equal((member.count("rescue"), said("rescued")), (0, []), "what it has heard, and the events")
        daemon.process.terminate()
        _, errors = daemon.wait_end()
        equal(errors.count("cannot be continued: Operation not permitted"), 1, f"the warnings in {errors}")


if __name__ == "__main__":
    main()
