#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs of several processes take turns with others, as cudawd decides: they are out, or run, together."""
import os
import signal
import time

from simlib import HELD, SCRATCH, held_back, hold, let_all_go, let_through, passed
from gpulib import check, cudaw, cudaw_ok, equal, jobs, main
from harness import until
from turnslib import (FOREVER, counting, events, finish, hold_entering, listed, members, on_gpu, ranks, rows,
                      start_daemon, states, take_turns)


def are_together():
    """The processes of a job are never apart, except for a moment."""
    until(lambda: len(set(states("many"))) == 1, 5, "its processes are in one state")


def take_many_turns(*jobs, count=4):
    for _ in range(count):
        take_turns(jobs)
        are_together()


def sharing():
    return ranks("many", "sharing", 2, "--objects", 4, "--mib", 8, "--ballast", 40)


def peers(shape=0):
    return ranks("many", "rank_kernels", 2, "--shape", shape, "--ballast", 60)


def goes_on(many):
    """It ends at the same step in all of its processes, and looks at every word."""
    many.wait_steps(many.steps() + 3)
    many.finish()


def processes_that_share_memory():
    start_daemon()
    many, one = sharing(), counting("one", 140, FOREVER)
    take_many_turns(many, one)
    check(all(row["turns"] for row in members().values()), f"the turns are {members()}")
    finish(one)
    goes_on(many)


def each_process_gives_what_its_gpu_lacks():
    os.environ["CUDAW_SIM_DEVICES"] = "2"
    start_daemon()
    jobs = [ranks(name, "sharing", 2, "--gpus", 2, "--ipc", 1, "--kib", 2048, "--ballast", 128)
            for name in ("first", "second")]
    for _ in range(4):
        take_turns(jobs)
        until(lambda: any(all(gpu["total"] // 4 < gpu["mapped"] < gpu["total"] for gpu in row["gpu"])
                          for row in listed() if row["state"] == "waits"), 10,
              "one waits, and has kept a part of its memory")
    for job in jobs:
        goes_on(job)
    del os.environ["CUDAW_SIM_DEVICES"]


def room_comes_while_others_give():
    """On both GPUs: the second job has some of its memory back before all of the first one's is saved. Then a
    copy of one process fails: the first job stays at rest, as others have its memory, and has its turn later."""
    os.environ["CUDAW_SIM_DEVICES"] = "2"
    start_daemon()
    fails = os.path.join(SCRATCH, "fails")
    jobs = [ranks(name, "sharing", 2, "--gpus", 2, "--ipc", 1, "--kib", 2048, "--ballast", 128, **env)
            for name, env in (("first", {"CUDAW_SIM_FAULT": f"cuMemcpyDtoHAsync_v2:{fails}:999", **HELD}),
                              ("second", {}))]
    take_turns(jobs)
    until(lambda: set(states("first")) == {"runs"}, 30, "the first one runs")
    hold("out")
    until(lambda: set(states("first")) == {"leaving"}, 30, "it is to give memory")
    before = on_gpu("second")

    def has_more():
        if held_back("out") and passed("out"):
            let_through("out")
        return on_gpu("second") > before
    until(has_more, 30, "the second one gets memory")
    equal(set(states("first")), {"leaving"}, "the state of the one that gives")
    with open(fails, "x", encoding="ascii"):
        pass
    let_all_go()
    until(lambda: events("failed", "first"), 30, "a copy fails")
    take_turns(jobs)
    equal(len(events("failed", "first")), 1, "failures")
    for job in jobs:
        goes_on(job)
    del os.environ["CUDAW_SIM_DEVICES"]


def processes_that_wait_for_each_other():
    start_daemon()
    for shape in (0, 1, 3):
        many, one = peers(shape), counting("one", 140, FOREVER)
        take_many_turns(many, one, count=3)
        finish(one)
        goes_on(many)


def the_user_pauses_one_of_two_jobs():
    start_daemon()
    many, one = sharing(), counting("one", 140, FOREVER)
    take_many_turns(many, one, count=2)
    for _ in range(2):
        cudaw_ok("pause", "many")    # also while its processes come to rest for the daemon
        until(lambda: states("many") == ["paused"] * 2, 5, "both are paused")
        take_turns([one], 20)
        cudaw_ok("resume", "many")   # it waits for its turn
        take_many_turns(many, one, count=2)
    finish(one)
    goes_on(many)


def the_user_pauses_one_process():
    """Alone, as no other one waits for it. The others run on, but once they are out they wait for it."""
    start_daemon()
    same = {"mode": "path", "CUDAW_JOB": "abc123", "CUDAW_NAME": "many", **HELD}
    first, second, one = (counting("many", 70, FOREVER, **same), counting("many", 70, FOREVER, **same),
                          counting("one", 140, FOREVER))
    for moment in ("runs", "waits", "enters", "runs", "waits", "enters"):
        take_turns([first, second, one])
        if moment == "enters":
            hold_entering("many", "in")
        until(lambda: set(states("many")) == {moment}, 30, f"its processes are in the state {moment}")
        cudaw_ok("pause", "--no-wait", first.pid)
        let_all_go()
        until(lambda: first.state() == "paused", 30, "it is paused")
        take_turns([one])
        cudaw_ok("resume", first.pid)    # it may have to wait for its turn
        take_turns([first, second, one])
    check("silent" not in cudaw_ok("events"), "one of them was left alone")
    for each in (one, first, second):
        finish(each)


def the_processes_are_killed():
    """And the others are ended, as launchers do: whatever they were doing, the memory is free."""
    start_daemon()
    for moment in ("leaving", "waits", "enters"):
        many, one = sharing(), counting("one", 140, FOREVER)
        take_many_turns(many, one, count=1)
        until(lambda: moment in states("many"), 30, f"it is {moment}")
        pids = [row["pid"] for row in rows("many")]
        os.kill(pids[0], signal.SIGKILL)
        time.sleep(0.2)
        for pid in pids[1:]:
            os.kill(pid, signal.SIGTERM)
        many.process.wait()
        many.discard()
        take_turns([one], 20)
        finish(one)
        until(lambda: not members(), 10, "all have left")


def a_process_joins_while_its_job_is_out():
    start_daemon()
    same = {"mode": "path", "CUDAW_JOB": "abc123", "CUDAW_NAME": "many"}
    first, one = counting("many", 140, FOREVER, **same), counting("one", 140, FOREVER)
    take_turns([first, one])
    until(lambda: states("many") == ["waits"], 20, "the first is out")
    # Its context fits into what the daemon keeps back.
    second = counting("many", 20, FOREVER, CUDAW_SIM_CONTEXT=str(4 << 20), **same)
    until(lambda: len(states("many")) == 2, 10, "the second has joined")
    take_many_turns(first, second, one)
    for each in (one, first, second):
        finish(each)


def the_daemon_is_killed():
    daemon = start_daemon()
    many, one = sharing(), counting("one", 140, FOREVER)
    for _ in range(3):
        take_many_turns(many, one, count=1)
        time.sleep(0.2)
        daemon.kill()
        daemon.wait()
        time.sleep(0.5)
        daemon = start_daemon()
        until(lambda: len(members()) == 3, 10, "all have joined again")
        take_turns([many, one])
    finish(one)
    goes_on(many)


def all_resume_without_a_daemon():
    """When there is room for all: none of them runs before."""
    daemon = start_daemon()
    many, one = peers(), counting("one", 140, FOREVER, CUDAW_TURNS_CLASS="interactive")
    until(lambda: states("many") == ["waits"] * 2, 30, "it is out")
    daemon.kill()
    daemon.wait()

    def said():
        return [(row["state"], (row["reason"] or "")[:18]) for row in jobs().values() if row["name"] == "many"]
    until(lambda: said() == [("waiting", "resume: waits for ")] * 2, 30, "both wait for memory")
    many.check_still()
    one.finish()
    goes_on(many)


def one_is_paused_without_a_daemon():
    """The others do not run without it, which is no pause of theirs: a new daemon gives them their turns."""
    daemon = start_daemon()
    same = {"mode": "path", "CUDAW_JOB": "abc123", "CUDAW_NAME": "many"}
    first, second, one = (counting("many", 70, FOREVER, **same), counting("many", 70, FOREVER, **same),
                          counting("one", 140, FOREVER))
    take_turns([first, second, one])
    until(lambda: states("many") == ["waits"] * 2, 30, "it is out")
    cudaw_ok("pause", "--no-wait", first.pid)
    until(lambda: first.state() == "paused", 30, "it is paused")
    daemon.kill()
    daemon.wait()
    until(lambda: second.state() == "paused", 30, "so is the other one")
    start_daemon()
    until(lambda: len(members()) == 3, 10, "all have joined again")
    take_turns([one])
    cudaw_ok("resume", "--no-wait", first.pid)
    take_turns([first, second, one])
    for each in (one, first, second):
        finish(each)


main(processes_that_share_memory, each_process_gives_what_its_gpu_lacks, room_comes_while_others_give,
     processes_that_wait_for_each_other, the_user_pauses_one_of_two_jobs, the_user_pauses_one_process,
     the_processes_are_killed, a_process_joins_while_its_job_is_out, the_daemon_is_killed,
     all_resume_without_a_daemon, one_is_paused_without_a_daemon)
