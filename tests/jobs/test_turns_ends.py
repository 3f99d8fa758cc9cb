#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A rank ends at each step in which its job gives memory to another job, and gets it back: the ranks that are left are
in one state, and the other job goes on.
"""
import os
import signal

from simlib import SANITIZED
from jointlib import Sharers
from gpulib import main
from harness import until
from turnslib import ENV, FOREVER, counting, finish, on_gpu, rows, start_daemon, states, take_turns

# How a rank is held there.
YIELD = {"drain": ("CALL", "cuCtxSynchronize"), "out": ("OUT", ""), "unmap": ("CALL", "cuMemUnmap")}
FILL = {"map": ("CALL", "cuMemCreate"), "in": ("IN", ""), "import": ("CALL", "cuMemImportFromShareableHandle")}
RANKS = 3


def begin(step, call):
    """The ranks have all of their memory, and make no calls, so that the other job gets what it asks for."""
    many = Sharers(step, call, "--ballast", 40, env=ENV)
    until(lambda: len(states(step)) == RANKS, 30, "all ranks have joined")
    return many


def one_that_needs_it():
    return counting("one", 180, FOREVER)


def is_out(many):
    return set(states(many.name)) == {"out"}


def at_step_of_a_yield(step, way, call):
    many = begin(step, call)
    many.hold(1, way)
    return many, one_that_needs_it(), way


def at_step_of_a_fill(step, way, call):
    many = begin(step, call)
    one = one_that_needs_it()
    until(lambda: is_out(many), 30, "all ranks are out")
    take_turns([one])
    many.hold(1, way)
    many.job.process.stdin.write("\n")
    return many, one, way


def settled(many):
    """Those that are left run, or wait for their turn, together."""
    found = states(many.name)
    return len(found) == RANKS - 1 and len(set(found)) == 1 and not {"leaving", "enters"} & set(found)


def a_rank_ends(at_step, steps, rank):
    def case():
        start_daemon()
        for step, words in steps.items():
            many, one, way = at_step(step, *words)
            until(lambda m=many, w=way: m.holder(1, w), 20, f"rank 1 is at {step}")
            os.kill(many.all[rank], signal.SIGKILL)
            many.let_all_go()
            take_turns([one], 10)
            until(lambda m=many: settled(m), 30, f"{step}: those that are left are in one state")
            many.end()
            until(lambda m=many: not rows(m.name), 10, "the ranks have left")
            finish(one)
            until(lambda: not on_gpu("one"), 10, "nothing stays on the GPU")
    return f"{'the held' if rank == 1 else 'another'} rank ends in {at_step.__name__.replace('_', ' ')}", case


main(*(a_rank_ends(at_step, steps, rank)
       for at_step, steps in ((at_step_of_a_yield, YIELD), (at_step_of_a_fill, FILL))
       for rank in ((1,) if SANITIZED else (0, 1, 2))))
