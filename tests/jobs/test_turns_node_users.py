#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs take turns by the machine's daemon, which believes no more than NVML shows."""
import contextlib
import os
import socket

from simlib import MIB, SCRATCH
from gpulib import Skip, check, equal, main
from harness import REPEATS, until
from turnslib import FOREVER, MEMORY_MIB, counting, events, finish, ranks, rows, start_daemon, take_turns

UUID = "GPU-63756461-772d-7369-6d75-6c6174656400"


@contextlib.contextmanager
def machines_daemon():
    """One for all users; jobs and commands ask it."""
    if os.geteuid():
        raise Skip("needs root")
    path = os.path.join(SCRATCH, "node.sock")
    os.environ["CUDAW_TURNS"] = path
    try:
        start_daemon("--socket", path)
        yield path
    finally:
        del os.environ["CUDAW_TURNS"]


@contextlib.contextmanager
def a_liar(path):
    """A member that says it has the whole GPU, and answers nothing."""
    with socket.socket(socket.AF_UNIX) as liar:
        liar.connect(path)
        size = MEMORY_MIB * MIB
        liar.sendall(f"turns 1\nname liar\nneed {UUID} {size} {size}\nstate running\njoined\n".encode())
        until(lambda: rows("liar"), 10, "it has joined")
        yield


def turns(path):
    many = ranks("many", "sharing", 2, "--objects", 4, "--mib", 8, "--ballast", 40, CUDAW_TURNS=path)
    one = counting("one", 140, FOREVER, CUDAW_TURNS=path)
    for _ in range(3 * REPEATS):
        take_turns((many, one))
    finish(one)
    many.wait_steps(many.steps() + 3)
    many.finish()
    equal([event["name"] for event in events("silent")], [], "who gave no answer")
    check(not events("refused"), "an allocation was refused")


def jobs_take_turns():
    with machines_daemon() as path:
        turns(path)


def jobs_take_turns_beside_one_that_lies():
    with machines_daemon() as path, a_liar(path):
        turns(path)


main(jobs_take_turns, jobs_take_turns_beside_one_that_lies)
