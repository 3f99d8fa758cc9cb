#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The job's side of cudawd (CUDAW_SHARE), with a stand-in for the daemon."""
import time

from simlib import MIB
from gpulib import check, equal, hog, main
from lease import EVERYTHING
from sharelib import member

SIZE_MIB = 48


def counting(**env):
    job, lease = member("counter", "--mib", SIZE_MIB, "--allocs", 12, "--verify", 1, "--steps", 1000000,
                        "--step-ms", 2, **env)
    job.wait_steps(3)
    return job, lease


def finish(job):
    job.wait_steps(job.steps() + 3)
    check("every word right" in job.finish(), "the job did not verify its memory")


def introduction():
    job, lease = counting(name="train", CUDAW_SHARE_CLASS="interactive", CUDAW_SHARE_WEIGHT="3")
    equal(lease.introduction[0], "share 1", "the first line")
    for word, value in (("name", "train"), ("pid", str(job.pid)), ("class", "interactive"),
                        ("weight", "3"), ("state", "running"), ("id", job.status()["id"])):
        equal(lease.said(word), value, f"the value of {word}")
    check("counter" in lease.said("command"), "the command is another one")
    mapped, total = (int(word) for word in lease.said("need").split()[1:])
    while mapped < SIZE_MIB * MIB:
        mapped, total = lease.need()
    equal(total, mapped, "what a running job needs")
    finish(job)


def turns():
    job, lease = counting()
    for size in (20 * MIB, EVERYTHING):
        freed = lease.take(size)
        check(freed >= min(size, SIZE_MIB * MIB), f"{freed} bytes were freed")
        left = lease.last("mapped")
        mapped, total = lease.need()
        equal((mapped, total), (left, left + freed), "the need of a job that is out")
        equal(lease.until("state"), "waiting", "the state that it says")
        lease.until("want")
        job.check_still()
        lease.fill()
        equal(lease.until("state"), "running", "the state that it says")
        job.wait_steps(job.steps() + 3)
    finish(job)


class Orders:
    """A job that allocates as it is told, and its connection to the stand-in."""

    def __init__(self, *first, **env):
        self.job, self.lease = None, None
        self.job, self.lease = member("orders", first=first or ("alloc 4",), **env)
        self.job.wait_line("alloc: ok")
        self.answered = len(self.job.lines)

    def send(self, order):
        self.job.process.stdin.write(f"{order}\n")

    def answer(self):
        """Its next line."""
        self.job.until(lambda: len(self.job.lines) > self.answered, 20, "the answer to an order")
        self.answered += 1
        return self.job.lines[self.answered - 1]

    def obeys(self, order, expected):
        self.send(order)
        equal(self.answer(), expected, f"the answer to {order}")

    def silent(self, seconds=0.2):
        time.sleep(seconds)
        equal(self.job.lines[self.answered:], [], "what it answers while it waits")

    def waits(self, order, size):
        """It has to wait for memory; returns the serial."""
        self.send(order)
        serial, asked = self.lease.grow()
        equal(asked, size, f"the bytes of {order}")
        self.silent()
        return serial

    def finish(self):
        self.obeys("check", "check: every word right")
        equal(self.job.result().splitlines()[-1], "orders: done", "the last line")


def growth_waits_for_room():
    for how in ("alloc", "async", "create", "pitch", "array"):
        orders = Orders()
        other, _ = hog()
        orders.lease.send(f"try {orders.waits(f'{how} 64', 64 * MIB)}")
        serial, _ = orders.lease.grow()     # there was no room
        orders.silent()
        orders.lease.send(f"no {serial}")
        equal(orders.answer(), f"{how}: error 2", "an allocation that is refused")
        serial = orders.waits(f"{how} 64", 64 * MIB)
        other.discard()
        orders.lease.send(f"try {serial}")
        equal(orders.answer(), f"{how}: ok", "an allocation that has room")
        orders.finish()


main(introduction, turns, growth_waits_for_room)
