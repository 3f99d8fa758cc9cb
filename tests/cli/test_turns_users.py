#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The machine's daemon among users who need not trust each other: what a job says keeps no memory from others."""
import contextlib
import fcntl
import itertools
import json
import os
import threading
import time

from clilib import cudaw, equal, main
from harness import check, until
from memberlib import CAPACITY, MIB, UUID, Member, a_job, connect, connected_by_another, node_daemon, say_memory

QUICK = ("--quantum", "0.2")
SIZE = 600 * MIB    # two do not fit
CONTEXT = 60 * MIB
lock = threading.Lock()


class Used(Member):
    """A member whose memory NVML shows as used, together with that of the others of its @book."""

    def __init__(self, daemon, *args, listed, **kwargs):
        self.memory, self.listed = daemon.memory, listed
        super().__init__(daemon, *args, **kwargs)

    def note_mapped(self, mapped):
        super().note_mapped(mapped)
        with lock:
            used = sum(size for key, size in list(self.book.items()) if key != "most")
            say_memory(self.memory, used, {os.getpid(): used} if self.listed else {})


def liar(daemon, connection, state="running", mapped=CAPACITY, total=CAPACITY):
    """A member that claims so much memory, and does nothing that it is told."""
    return Member(daemon, name="liar", obeys=False, connection=connection,
                  lines=("turns 1", a_job(), "name liar", f"need {UUID} {mapped} {total}", f"state {state}", "joined"))


def row(name):
    members = json.loads(cudaw("turns", "--json").out)["members"]
    return {member["name"]: member for member in members}[name]


def test_memory_that_nvml_does_not_show():
    """It is there for others, though the one that claims it has a context, and gives nothing."""
    with node_daemon(*QUICK) as daemon, connected_by_another(daemon.path) as (connection, pid):
        say_memory(daemon.memory, CONTEXT, {pid: CONTEXT})
        lies = liar(daemon, connection)
        lies.wait("welcome")
        member = Member(daemon, 0, "member")
        member.grow(SIZE)
        equal(member.wait("try"), "try 1")
        time.sleep(0.5)
        equal(lies.count("yield"), 0, "orders to give memory that is not there")


def test_memory_of_one_that_nvml_does_not_list():
    """As much as others use is not its own."""
    with node_daemon(*QUICK) as daemon, connected_by_another(daemon.path) as (connection, _):
        first = Member(daemon, SIZE, "first")
        first.wait("welcome")
        say_memory(daemon.memory, SIZE, {os.getpid(): SIZE})
        lies = liar(daemon, connection, mapped=SIZE)
        lies.wait("welcome")
        second = Member(daemon, 0, "second")
        second.grow(CAPACITY - SIZE)
        equal(second.wait("try"), "try 1")
        equal((lies.count("yield"), first.count("yield")), (0, 0))


def test_a_high_uid():
    """As of containers in user namespaces."""
    user = 3000000000
    with node_daemon() as daemon, connected_by_another(daemon.path, user) as (connection, pid):
        Member(None, name="high", connection=connection).wait("welcome")
        equal((row("high")["uid"], row("high")["user"]), (user, str(user)), "its user")
        events = [json.loads(line) for line in cudaw("events", "--json").out.splitlines()]
        equal({event["uid"] for event in events if event["pid"] == pid}, {user}, "the user of its events")


def take_turns(listed):
    with node_daemon(*QUICK) as daemon:
        equal(cudaw("turns", "set", "residence=0.05").code, 0)      # NVML does not go by the clock of the test
        book = {}
        first, second = (Used(daemon, size, name, book=book, listed=listed) for size, name in
                         ((SIZE, "first"), (0, "second")))
        second.wait("welcome")
        second.grow(SIZE)
        for _ in (1, 2, 3):
            until(lambda: second.mapped == SIZE, 5, "the second has its memory")
            until(lambda: first.mapped == SIZE, 5, "the first has its memory")
        check(book["most"] <= CAPACITY, f"{book['most']} bytes were mapped of {CAPACITY}")


def test_those_that_nvml_shows_take_turns():
    take_turns(True)


def test_those_that_nvml_does_not_list_take_turns():
    """As in some containers."""
    take_turns(False)


@contextlib.contextmanager
def nvml_blocked(path):
    """What it is asked for meanwhile it answers later, by the file @path as it is now."""
    with open(path, "r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        yield


def used():
    return json.loads(cudaw("turns", "--json").out)["gpus"][0]["used"]


def test_new_gpus_all_the_time():
    """Somebody who has not joined names one after the other. NVML does not say what it has of them."""
    numbers = itertools.count()
    with node_daemon("--quantum", "1000") as daemon:
        member = Used(daemon, 0, "member", book={"others": CONTEXT}, listed=False)
        member.wait("welcome")
        until(lambda: used() == CONTEXT, 5, "NVML has answered")

        def another_comes():
            with connect(daemon.path) as connection:
                connection.sendall(f"turns 1\nneed GPU-{next(numbers):08x}-0000-0000-0000-000000000000 0 0\n".encode())
                daemon.passes(1)
        with nvml_blocked(daemon.memory):
            another_comes()
            member.grow(SIZE)
            until(lambda: another_comes() or member.mapped == SIZE, 5, "its allocation has memory")
        named = next(numbers)
        check(2 < named < 20, f"it has memory when {named} GPUs were named, a second apart")


def test_an_answer_of_nvml_that_comes_late():
    """Memory that a job got after the question is its own."""
    with node_daemon("--quantum", "1000") as daemon:
        first, second = (Used(daemon, 0, name, book={}, listed=False) for name in ("first", "second"))
        second.wait("welcome")
        first.grow(SIZE // 2)
        first.wait("try")
        with nvml_blocked(daemon.memory):
            first.grow(SIZE // 2)
            until(lambda: daemon.passes(1) or row("first")["gpu"][0]["mapped"] == SIZE, 5, "it gets more without NVML")
            daemon.passes(5)
            second.grow(SIZE)
            daemon.passes(1)
        until(lambda: second.mapped or used() == SIZE, 5, "NVML has answered, and was asked again")
        equal(second.mapped, 0, "memory that the first has")


def test_memory_of_others_while_nvml_answers_late():
    """What a job got after the question is not what others had."""
    book = {"others": CAPACITY // 3}
    with node_daemon("--quantum", "1000") as daemon:
        second = Used(daemon, 0, "second", book=book, listed=False)
        second.wait("welcome")
        until(lambda: used() == CAPACITY // 3, 5, "NVML has answered")
        first = Used(daemon, CAPACITY // 2, "first", mapped=0, state="waiting", book=book, listed=False, obeys=False)
        first.wait("yield")
        first.give(0)
        first.wait("room")
        with nvml_blocked(daemon.memory):
            daemon.passes(0.3)
            first.take(CAPACITY // 2)
            second.grow(CAPACITY // 3)
            daemon.passes(3.5)
        until(lambda: second.mapped or used() == CAPACITY // 3 + CAPACITY // 2, 5, "NVML was asked again")
        equal(second.mapped, 0, "memory that others have")


def test_memory_that_nvml_shows():
    """Nobody gets that of a job that runs, and says what is true."""
    with node_daemon(*QUICK, "--quantum", "1000") as daemon, connected_by_another(daemon.path) as (connection, pid):
        say_memory(daemon.memory, SIZE + CONTEXT, {pid: SIZE + CONTEXT})
        honest = liar(daemon, connection, mapped=SIZE, total=SIZE)
        honest.wait("welcome")
        member = Member(daemon, 0, "member")
        member.grow(SIZE)
        time.sleep(2)
        equal((member.count("try"), member.count("no"), honest.count("yield")), (0, 0, 0))
        check(row("member")["waits_for"] == pid, "it does not wait for the one that has the memory")


def test_room_that_is_not_taken():
    """It goes to the next one, though the job that has it says all the time that it takes its memory."""
    with node_daemon(*QUICK) as daemon, connected_by_another(daemon.path) as (connection, pid):
        say_memory(daemon.memory, CONTEXT, {pid: CONTEXT})
        lies = liar(daemon, connection, state="waiting", mapped=0)
        lies.wait("yield")
        lies.say("freed 0", "mapped 0", "end ok", f"need {UUID} 0 {CAPACITY}", "want")
        lies.wait("room")
        member = Member(daemon, 0, "member")
        member.grow(SIZE)

        def is_served():
            lies.say("mapped 0", "progress memory 0 0")
            daemon.passes(5)    # of the 10 for which it may be silent
            return member.count("try")
        until(is_served, 5, "the member has its memory")
        check("silent" not in cudaw("events").out, "the one that lies was left alone as it said nothing")


def test_words_that_free_nothing():
    """Another one gives what the first one only says that it gives."""
    half = CAPACITY // 3
    with node_daemon(*QUICK) as daemon, connected_by_another(daemon.path) as (connection, _):
        say_memory(daemon.memory, half)
        lies = liar(daemon, connection, mapped=half, total=half)
        lies.wait("welcome")
        # Of a greater weight, so that the first one is asked before.
        other = Used(daemon, half, listed=False, book={lies: half},
                     lines=("turns 1", a_job(), "name other", "weight 100", f"need {UUID} {half} {half}",
                            "state running", "joined"))
        other.wait("welcome")
        member = Member(daemon, 0, "member")
        member.wait("welcome")
        member.grow(half + half // 2)
        lies.wait_turn("yield")

        def is_served():
            lies.say("freed 0", f"mapped {half}")
            daemon.passes(0.2)
            return member.count("try")
        until(is_served, 30, "the other one has given its memory")
        equal(lies.count("yield"), 1, "how often the first one was asked")


if __name__ == "__main__":
    main()
