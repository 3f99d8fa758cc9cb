#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A rank or the command ends, or is stopped, at each step of a pause and of a resume of processes that share
memory: all that live run in the end, or all are paused.
"""
import os
import signal
import subprocess

from jointlib import Sharers, commands
from gpulib import CUDAW, PATIENCE, base_environment, check, cudaw, cudaw_ok, jobs, main, until

# How a rank is held there.
PAUSE = {"drain": ("CALL", "cuCtxSynchronize"), "out": ("OUT", ""), "unmap": ("CALL", "cuMemUnmap"),
         "lock": ("CALL", "cuCheckpointProcessLock")}
RESUME = {"restore": ("CALL", "cuCheckpointProcessRestore"), "map": ("CALL", "cuMemCreate"), "in": ("IN", ""),
          "import": ("CALL", "cuMemImportFromShareableHandle")}
AT_REST = ({"running"}, {"paused"}, {"failed"}, {"paused", "failed"})
WHO = ("the held rank", "another rank", "the first rank", "the command", "the held rank and the command")


def asked(ranks, verb):
    commands.append(subprocess.Popen([CUDAW, verb, ranks.name], env=base_environment(), text=True,
                                     stdout=subprocess.PIPE, stderr=subprocess.PIPE))
    return commands[-1]


def at_step(verb, step, way, call, by_signal=False):
    """A job whose rank 1 is there, and its command; None: each rank was asked by a signal."""
    ranks = Sharers(f"{verb}-{step}", call)
    if verb == "resume":
        cudaw_ok("pause", ranks.name)
    ranks.hold(1, way)
    command = None if by_signal else asked(ranks, verb)
    for pid in ranks.all if by_signal else ():
        os.kill(pid, signal.SIGUSR2)
    until(lambda: ranks.holder(1, way), 20, f"rank 1 is at {step}")
    check(ranks.holder(1, way) == ranks.all[1], "another rank than the second is held")
    return ranks, command


def settle(ranks, left, what):
    """All that live run, or all are paused."""
    until(lambda: len(ranks.states()) == left and set(ranks.states()) in AT_REST, 30,
          f"{what}: all run, or all are paused, not {ranks.states()}")


def one_ends(verb, steps, who):
    def case():
        for step, (way, call) in steps.items():
            ranks, command = at_step(verb, step, way, call)
            held = ranks.all[1]
            victims = {"the held rank": [held], "another rank": ranks.all[2:], "the first rank": ranks.all[:1],
                       "the command": [command.pid], "the held rank and the command": [command.pid, held]}[who]
            for pid in victims:
                os.kill(pid, signal.SIGKILL)
            ranks.let_all_go()
            out, said = command.communicate(timeout=60 * PATIENCE)
            left = 3 if who == "the command" else 2
            settle(ranks, left, f"{step}, then {said!r}")
            done = cudaw("resume", ranks.name)
            settle(ranks, left, f"{step}, resumed, then {done.stderr!r}")
            if left == 3:
                ranks.goes_on()
            ranks.end()
    return f"the end of {who} at each step of a {verb}", case


def stopped_at(verb, step, by_signal=False):
    """A job whose rank 1 is stopped there, while the others wait for it; and its command."""
    ranks, command = at_step(verb, step, *(PAUSE if verb == "pause" else RESUME)[step], by_signal)
    os.kill(ranks.all[1], signal.SIGSTOP)
    ranks.let_all_go()
    return ranks, command


def goes_on_stopping(ranks, command, what):
    """The rank goes on, and all are at rest, or run, together."""
    os.kill(ranks.all[1], signal.SIGCONT)
    settle(ranks, 3, what)
    if command:
        command.communicate(timeout=60 * PATIENCE)
    cudaw_ok("resume", ranks.name)
    ranks.goes_on()
    ranks.end()


def others_are(ranks, *wanted):
    found = jobs()
    return {found[pid]["state"] for pid in ranks.all if pid != ranks.all[1]} <= set(wanted)


def a_stopped_rank_keeps_nobody_in_a_pause():
    """The others are told to run, or find it out."""
    for told in True, False:
        ranks, command = stopped_at("pause", "out")
        for pid in ranks.all[::2] if told else ():
            os.kill(pid, signal.SIGUSR2)
        until(lambda r=ranks: others_are(r, "running"), 60, "the others run")
        goes_on_stopping(ranks, command, "a pause")


def a_stopped_rank_keeps_nobody_in_a_resume():
    for by_signal in True, False:
        for step in "in", "import":
            ranks, command = stopped_at("resume", step, by_signal)
            if by_signal:
                until(lambda r=ranks: others_are(r, "resuming"), 20, "the others wait")
                for pid in ranks.all[::2]:
                    os.kill(pid, signal.SIGUSR1)
            until(lambda r=ranks: others_are(r, "paused", "failed"), 60, "the others are paused")
            if by_signal:
                os.kill(ranks.all[1], signal.SIGUSR1)
            goes_on_stopping(ranks, command, f"a resume, {step}")


main(*(one_ends("pause", PAUSE, who) for who in WHO), *(one_ends("resume", RESUME, who) for who in WHO),
     a_stopped_rank_keeps_nobody_in_a_pause, a_stopped_rank_keeps_nobody_in_a_resume)
