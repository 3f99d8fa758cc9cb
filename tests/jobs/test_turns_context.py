#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A job that has filled the GPU fits no more beside the context of another one, unless that one gives its context."""
from simlib import knows_gpu, process_used
from gpulib import check, cudaw_ok, equal, main
from harness import contains, until
from turnslib import FOREVER, MEMORY_MIB, CONTEXT_MIB, counting, events, finish, members, start_daemon, take_turns

FULL_MIB = MEMORY_MIB - CONTEXT_MIB - 8


def fills():
    """A job that takes all of the GPU, as a caching allocator does."""
    big = counting("big", FULL_MIB, FOREVER)
    big.wait_steps(3)
    return big


def beside(big, **settings):
    """Another one, which comes while that has given its memory."""
    cudaw_ok("pause", big.pid)
    small = counting("small", 40, FOREVER, **knows_gpu(), **settings)
    small.wait_steps(3)
    cudaw_ok("resume", "--no-wait", big.pid)
    return small


def stops_nobody(big, small):
    """It does not fit any more, and says so."""
    until(lambda: members()[big.pid]["unfit"], 30, "it does not fit")
    gave, steps = len(events("gave", "small")), big.steps()
    small.wait_steps(small.steps() + 100)
    equal(len(events("gave", "small")), gave, "how often the other one was stopped")
    equal(big.steps(), steps, "the steps of one that does not fit")


def changes_places(big, small):
    """Both get on, and run alone."""
    for _ in range(2):
        big.wait_steps(big.steps() + 3)
        until(lambda: (members()[small.pid]["context"], process_used(small.pid) or 0) == ("out", 0), 30,
              "the other one has nothing on the GPU")
        small.wait_steps(small.steps() + 3)
        until(lambda: members()[small.pid]["context"] == "restored", 30, "its context is back")
    check(len(events("released", "small")) >= 2, "the context was not released twice")
    contains(cudaw_ok("turns"), f"process {small.pid} runs beside nobody, as its context ")
    equal(events("failed"), [], "what has failed")


def as_the_administrator_says():
    start_daemon()
    big = fills()
    small = beside(big)
    stops_nobody(big, small)
    cudaw_ok("turns", "set", "context-after=1")
    changes_places(big, small)
    for job in (big, small):
        finish(job)


def as_the_job_says():
    """Its user's word counts before the administrator's."""
    start_daemon("--context-after", "1")
    big = fills()
    small = beside(big, CUDAW_TURNS_CONTEXT_AFTER="never")
    stops_nobody(big, small)
    small.discard()
    take_turns([big])
    finish(big)


def one_that_cannot():
    """The driver does not release it: the job runs on as ever, and is left alone for ten minutes."""
    start_daemon("--context-after", "1")
    big = fills()
    small = beside(big, CUDAW_SIM_FAULT="cuCheckpointProcessCheckpoint:1:801")
    until(lambda: events("kept", "small"), 60, "it keeps its context")
    contains(events("kept", "small")[0]["text"], "NOT_SUPPORTED")
    stops_nobody(big, small)
    small.discard()
    take_turns([big])
    finish(big)


main(as_the_administrator_says, as_the_job_says, one_that_cannot)
