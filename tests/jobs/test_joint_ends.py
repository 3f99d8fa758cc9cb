#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A rank or the command ends, or is stopped, at each step of a pause and of a resume of several processes."""
import os
import signal
import subprocess

from jointlib import CONTEXT, GPU, MEMORY, Ranks
from simlib import gpu_used
from gpulib import CUDAW, PATIENCE, base_environment, cudaw_ok, equal, hog, jobs, main, until

WAYS = {"takes": "CALL", "copies": "IN", "waits": None}


def at_steps(*steps):
    """Jobs of which one rank is at that step of its resume, and the other one is whole, or waits as well: two
    for each step. Returns them with their commands, and the one of that two; and who has the GPU's memory."""
    found, other = [(Ranks(f"{step}{turn}"), step, turn) for step in steps for turn in range(2)], None
    for ranks, _, _ in found:
        cudaw_ok("pause", "--release", "memory", ranks.name)
    if "waits" in steps:
        other = hog("--mib", GPU - (1 + 2 * len(found)) * CONTEXT - MEMORY - 40)[0]
    there = []
    for ranks, step, turn in found:
        if WAYS[step]:
            ranks.hold(1, WAYS[step])
        there.append((ranks, ranks.resume(), turn))
    for ranks, step, _ in found:
        if WAYS[step]:
            until(lambda r=ranks, way=WAYS[step]: r.holder(1, way), 20, "it is there")
        else:
            ranks.wait_states("waiting")
    return there, other


def a_rank_ends(how):
    def case():
        for steps in ("takes", "copies"), ("waits",):
            there, other = at_steps(*steps)
            for ranks, resume, turn in there:
                held = ranks.holder(1, "CALL") or ranks.holder(1, "IN") or ranks.all[1]
                if how == "after the command":
                    resume.kill()
                    resume.wait()
                if how == "with the command stopped":
                    resume.send_signal(signal.SIGSTOP)
                os.kill(next(pid for pid in ranks.all if (pid == held) == (turn == 0)), signal.SIGKILL)
                ranks.let_all_go()
            for ranks, resume, _ in there:      # one may have ended when it was whole: then all are, and go on
                until(lambda r=ranks: r.states() in (["paused"], ["running"]), 30, f"{ranks.name} runs, or is paused")
                if how == "with the command stopped":
                    resume.kill()
                resume.wait(20 * PATIENCE)
            if other:
                other.discard()
            for ranks, _, _ in there:
                cudaw_ok("resume", ranks.name)
                ranks.wait_states("running", count=1)
                ranks.end()
    return f"a rank ends at each step {how}", case


def a_command_ends_at_each_step():
    for steps in ("takes", "copies"), ("waits",):
        there, other = at_steps(*steps)
        for ranks, resume, _ in there:
            resume.kill()
            resume.wait()
            ranks.job.check_still(spare=0)
        if other:
            other.discard()
        for ranks, _, _ in there:
            ranks.let_all_go()
        for ranks, _, _ in there:
            ranks.goes_on()
            ranks.end()


PAUSE_STEPS = {"out": ("OUT", ""), "unmap": ("CALL", "cuMemUnmap"), "release": ("CALL", "cuCheckpointProcessLock")}


def a_pause_ends_well(who):
    """One rank is at each of the steps of a pause: those that live run, or are paused."""
    def case():
        for name, (way, call) in PAUSE_STEPS.items():
            ranks = Ranks(name, call)
            ranks.hold(1, way)
            pause = subprocess.Popen([CUDAW, "pause", ranks.name], env=base_environment(), text=True,
                                     stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            until(lambda r=ranks, w=way: r.holder(1, w), 20, "it is there")
            held = ranks.holder(1, way)
            victims = {"the held rank": [held], "the other rank": [p for p in ranks.all if p != held],
                       "the command": [pause.pid], "the held rank and the command": [pause.pid, held]}[who]
            for pid in victims:
                os.kill(pid, signal.SIGKILL)
            ranks.let_all_go()
            pause.communicate(timeout=60 * PATIENCE)
            left = 2 if who == "the command" else 1
            until(lambda r=ranks, n=left: r.states() in (["running"] * n, ["paused"] * n), 30,
                  f"{name}: all run, or all are paused")
            cudaw_ok("resume", ranks.name)
            ranks.wait_states("running", count=left)
            ranks.end()
    return f"the end of {who} at each step of a pause", case


def a_stopped_rank_keeps_nobody():
    """Not even without a command: the other one gives its memory back, and the stopped one when it goes on."""
    ranks = Ranks("still")
    cudaw_ok("pause", "--release", "memory", ranks.name)
    used = gpu_used()
    ranks.hold(1, "CALL")
    resume = ranks.resume()
    until(lambda: ranks.holder(1, "CALL"), 20, "it takes its memory")
    stopped = ranks.holder(1, "CALL")
    os.kill(stopped, signal.SIGSTOP)
    resume.kill()
    resume.wait()
    other = next(pid for pid in ranks.all if pid != stopped)
    until(lambda: jobs()[other]["state"] == "paused", 30, "the other one is paused")
    ranks.let_go(1, "CALL")
    os.kill(stopped, signal.SIGCONT)
    ranks.wait_states("paused")
    equal(gpu_used(), used, "the memory in use")
    cudaw_ok("resume", ranks.name)
    ranks.goes_on()
    ranks.end()


main(*(a_rank_ends(how) for how in ("beside the command", "after the command", "with the command stopped")),
     a_command_ends_at_each_step, a_stopped_rank_keeps_nobody,
     *(a_pause_ends_well(who) for who in ("the held rank", "the other rank", "the command",
                                          "the held rank and the command")))
