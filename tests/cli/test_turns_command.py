#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cudawd, with stand-ins for jobs, and the commands that ask it."""
import glob
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import threading
import time

from clilib import BUILD, CUDAW, LIMIT_S, Directory, contains, cudaw, ends_with_us, equal, main, scratch, stop
from harness import PATIENCE, TESTS, check, sleeping_as, until
from json_docs import check_documented
from proclib import descriptors
from memberlib import CAPACITY, CUDAWD, MIB, TOTAL, UUID, Daemon, Member, a_job, connect, daemon_of_systemd, \
    say_memory

LINGER_S = 60       # of Daemon
QUICK = ("--quantum", "0.2")
SANITIZED = bool(os.environ.get("SANITIZE"))    # the shell cannot load what is built so
SIZE = 600 * MIB    # two do not fit
# In the daemon's source.
KIND = re.compile(r'(?:\b(?:member_)?note\(|events_add\(|rules_note\(connection, (?:.* : )?)"([^"]*)"')


def started(*options):
    return Daemon(Directory(), *QUICK, *options)


def rows():
    result = cudaw("turns", "--json")
    equal((result.code, result.err), (0, ""))
    return json.loads(result.out)


def row(name):
    return {member["name"]: member for member in rows()["members"]}[name]


def events(*args):
    result = cudaw("events", "--json", *args)
    equal((result.code, result.err), (0, ""))
    return [json.loads(line) for line in result.out.splitlines()]


def hear_all(connection):
    """What comes up to the end of the connection, with which unread lines of ours may go."""
    heard = b""
    try:
        while part := connection.recv(1 << 16):
            heard += part
    except ConnectionResetError:
        pass
    return heard


def test_two_that_do_not_fit_take_turns():
    daemon, book = started(), {}
    first = Member(daemon, SIZE, "first", book=book)
    equal(first.wait("welcome"), "welcome 500")
    second = Member(daemon, 0, "second", book=book)
    second.wait("welcome")
    daemon.passes(600)
    equal((first.count("yield"), second.count("room")), (0, 0))
    second.grow(SIZE)
    first.wait("watch")
    for turn in (1, 2):
        first.wait_turn("yield", turn)
        until(lambda: second.mapped == SIZE, 5, "the second has its memory")
        second.wait_turn("yield", turn)
        until(lambda: first.mapped == SIZE, 5, "the first has its memory")
    # Its turns take much less to begin, those that are held up aside.
    until(lambda: any(200 <= int(line.split()[1]) < 500 for line in first.heard if line.startswith("idle ")),
          5, "the first may idle for a shorter time")
    check(book["most"] <= CAPACITY, f"{book['most']} bytes were mapped of {CAPACITY}")
    first.hang_up()
    until(lambda: second.mapped == SIZE, 5, "the second has its memory")
    daemon.passes(600)
    equal(second.mapped, SIZE)
    second.wait("unwatch")


def test_two_that_fit_are_left_alone():
    daemon = started()
    members = [Member(daemon, 400 * MIB, name) for name in ("first", "second")]
    for member in members:
        member.wait("welcome")
    daemon.passes(600)
    equal([member.heard for member in members], [["welcome 500"]] * 2)


def test_one_that_gives_is_killed():
    """What it had is there for the other one."""
    daemon = started()
    first = Member(daemon, SIZE, "first", obeys=False)
    first.wait("welcome")
    second = Member(daemon, 0, "second")
    second.grow(SIZE)
    first.wait_turn("yield")
    first.say("state waiting", f"freed {64 * MIB}")
    first.hang_up()
    until(lambda: second.mapped == SIZE, 5, "the second has its memory")


def test_one_that_takes_is_killed():
    """The one that gave gets its memory back."""
    daemon = started()
    first = Member(daemon, SIZE, "first")
    first.wait("welcome")
    second = Member(daemon, 0, "second", obeys=False)
    second.grow(SIZE)
    first.wait_turn("yield")
    second.hang_up()
    until(lambda: first.mapped == SIZE, 5, "the first has its memory")
    # One that gets its memory back.
    second = Member(daemon, 0, "second")
    second.grow(SIZE)
    daemon.until(lambda: second.mapped == SIZE, "the second has its memory")
    first.obeys = False
    first.wait_turn("room", 2)
    first.hang_up()
    until(lambda: second.mapped == SIZE, 5, "the second has its memory")


def test_allocations_that_do_not_fit_together():
    """Each of them fits beside what their job has, so that it gets its turn, and one of them."""
    daemon = started()
    size = SIZE * 4 // 5
    first = Member(daemon, size, "first", obeys=False)
    first.wait("welcome")
    second = Member(daemon, 0, "second")
    second.wait("welcome")
    second.grow(SIZE)
    first.wait_turn("yield")
    first.say("state waiting", f"freed {size}", "mapped 0", "end ok", f"need {UUID} 0 {size}", "want")
    for serial in (1, 2):
        first.say(f"grow {serial} {UUID} {SIZE // 2}")
    until(lambda: second.mapped == SIZE, 5, "the second has its memory")
    second.hang_up()
    first.wait("room")
    equal([event["text"] for event in events() if event["event"] == "unfit"], [], "that it cannot fit")


def test_others_are_not_those_that_come_and_go():
    """Memory is of others only if it lasts: not of one that joins again, nor what the driver has yet to free."""
    daemon = started("--quantum", "100")
    say_memory(daemon.memory, SIZE)
    waits = Member(daemon, SIZE, "waits", mapped=0, state="waiting")
    waits.wait("welcome")
    waits.say("want")
    time.sleep(1)
    ends = Member(daemon, SIZE, "ends")
    ends.wait("welcome")
    time.sleep(0.5)
    ends.hang_up()
    time.sleep(0.5)
    say_memory(daemon.memory, 0)
    until(lambda: waits.mapped == SIZE, 5, "it has its memory")
    equal([event["text"] for event in events() if event["event"] == "unfit"], [], "that it cannot fit")


def test_one_that_is_silent_is_left_alone():
    daemon = started()
    first = Member(daemon, SIZE, "first", obeys=False)
    first.wait("welcome")
    # Its memory is there, whatever becomes of it.
    say_memory(daemon.memory, SIZE)
    second = Member(daemon, 0, "second")
    second.grow(SIZE)
    yielded = first.wait_turn("yield")
    daemon.passes(30)
    until(lambda: row("first")["state"] == "silent", 20, f"it is left alone, after {yielded}")
    check("silent" in [event["event"] for event in events()], "no event tells it")
    asked = cudaw("yield", "first")
    equal((asked.code, asked.err), (5, "cudaw: first: the job gives no answer: it may be stopped\n"), "a yield")
    equal(row("second")["waits_for"], row("first")["pid"], "for whom the second waits")
    equal((second.count("no"), second.count("try")), (0, 0), "answers while it waits")
    # It has not read what it was told, and says something else: it joins again.
    first.say("idle 1000")
    until(lambda: first.closed, 5, "it is told to join again")
    contains(first.heard[-1], "end timeout ")
    daemon.passes(1)
    equal(second.count("no"), 0, "refusals while it may join again")
    say_memory(daemon.memory, 0)
    until(lambda: second.mapped == SIZE, 5, "the second has its memory")


def test_one_that_cannot_give_runs_on():
    daemon = started()
    first = Member(daemon, SIZE, "first", obeys=False)
    first.wait("welcome")
    second = Member(daemon, 0, "second")
    second.grow(SIZE)
    first.wait_turn("yield")
    first.say("end timeout kernels did not end")
    daemon.passes(0.3)
    equal(second.mapped, 0)
    failed, = [event for event in events() if event["event"] == "failed"]
    contains(failed["text"], "timeout kernels did not end")
    first.hang_up()
    until(lambda: second.mapped == SIZE, 5, "the second has its memory")


def a_fill():
    """The second has room for all that it has."""
    daemon = started()
    first = Member(daemon, SIZE, "first")
    first.wait("welcome")
    second = Member(daemon, SIZE, "second", state="waiting", mapped=0, obeys=False)
    second.wait("yield")
    second.give(0)
    daemon.until(lambda: f"room {SIZE}" in second.heard, "the second has room")
    return first, second


def test_a_yield_that_crosses_the_end_of_a_fill():
    """The answer to the room is none to the yield."""
    first, second = a_fill()
    second.say("state paused")
    second.wait("yield", 2)
    second.take(SIZE)
    first.daemon.passes(5)
    equal((first.mapped, second.count("yield")), (CAPACITY - SIZE, 2))
    second.give(SIZE)
    until(lambda: first.mapped == SIZE, 5, "the first has its memory")
    gave = [event["text"] for event in events() if event["event"] == "gave" and event["name"] == "second"]
    equal([text.split(" in ")[0] for text in gave], ["0 B", "600 MiB"])


def two_of_a_job():
    """Which get room, and the bytes of each."""
    daemon, job, half = started(), a_job(), SIZE // 2
    one = Member(daemon, SIZE, "one")
    one.wait("welcome")
    pair = [Member(daemon, half, "many", mapped=0, obeys=False, lines=(
        "turns 1", job, "name many", "pid 7", "command ./many", f"need {UUID} 0 {half}", "state waiting",
        "joined")) for _ in range(2)]
    for member in pair:
        member.wait("welcome")  # of both, before one of them wants its memory
    for member in pair:
        member.wait("yield")
        member.give(0)
    # The one that is told first may be told before there is room for both.
    daemon.until(lambda: all(f"room {half} hold" in member.heard for member in pair), "both have room")
    return *pair, half


def test_a_yield_that_crosses_a_fill_at_rest():
    """It is not at rest for the yield yet."""
    first, second, _ = two_of_a_job()
    second.say("state paused")
    first.wait("yield", 2)
    first.say("filled", "held drained 0")
    second.say("held drained 0")
    first.daemon.passes(5)
    equal([member.count("commit") for member in (first, second)], [0, 0])
    first.say("held drained 0")
    first.wait("commit")
    second.wait("commit")


def test_one_that_has_all_of_its_memory():
    """Whatever the daemon thinks, it needs no room, and the others of its job go on."""
    first, second, half = two_of_a_job()
    second.note_mapped(half)
    second.say("filled", "end busy the job has all of its memory, or takes it", second.need(),
               "state running")
    first.say("filled", "held drained 0")
    first.wait("commit")
    first.take(half)
    until(lambda: {(member["name"], member["state"]) for member in rows()["members"]} ==
          {("one", "waits"), ("many", "runs")}, 5, "both run")


def test_one_with_room_for_a_part_owes_no_answer():
    """It has taken that part, and waits for more."""
    daemon = started()
    first = Member(daemon, SIZE, "first", obeys=False)
    first.wait("welcome")
    second = Member(daemon, SIZE, "second", state="waiting", mapped=0)
    first.wait_turn("yield")
    first.say("end timeout kernels did not end")
    until(lambda: row("second")["gpu"][0]["mapped"] == CAPACITY - SIZE, 5, "the second has what there is")
    daemon.passes(30)
    check(not second.closed, f"the second has heard {second.heard}")
    first.hang_up()
    until(lambda: second.mapped == SIZE, 5, "the second has its memory")


def test_memory_of_others_counts():
    """No more fits than they leave; and it is noticed when they go."""
    daemon, little = started(), 60 * MIB
    say_memory(daemon.memory, 500 * MIB + little)
    other = Member(daemon, little, "other", lines=(
        "turns 1", "id abcdef", "name other", "pid 7", "class interactive",
        f"need {UUID} {little} {little}", "state running", "joined"))
    other.wait("welcome")
    member = Member(daemon, SIZE, "job", state="waiting", mapped=0)
    member.wait("yield")
    time.sleep(0.5)
    check(member.mapped <= CAPACITY - 500 * MIB - little, f"{member.mapped} bytes are mapped")
    equal(row("job")["state"] in ("waits", "enters"), True)
    equal(rows()["gpus"], [{"uuid": UUID, "total": TOTAL, "used": 500 * MIB + little, "others": 500 * MIB,
                            "capacity": CAPACITY - 500 * MIB, "state": "open"}])
    say_memory(daemon.memory, little)
    until(lambda: member.mapped == SIZE, 5, "the member has its memory")


def test_memory_of_others_while_one_is_paused():
    """What it has is not known before it says so: nobody gets what it may have given back."""
    daemon = started()
    say_memory(daemon.memory, SIZE + 300 * MIB)
    first = Member(daemon, SIZE, "first", obeys=False)
    first.wait("welcome")
    until(lambda: rows()["gpus"][0]["others"] == 300 * MIB, 5, "the daemon knows what others have")
    first.say("state pausing", "progress drain 0 0")
    second = Member(daemon, 0, "second")
    second.grow(CAPACITY - 300 * MIB)
    say_memory(daemon.memory, SIZE + 200 * MIB)
    until(lambda: rows()["gpus"][0]["others"] == 200 * MIB, 5, "the daemon sees what others have")
    first.say(f"progress copy 0 {SIZE}")
    say_memory(daemon.memory, 200 * MIB)
    time.sleep(1)
    equal((rows()["gpus"][0]["others"], second.mapped), (200 * MIB, 0))
    first.say(f"need {UUID} 0 {SIZE}", "state paused")
    until(lambda: second.mapped == CAPACITY - 300 * MIB, 5, "the second has its memory")


def test_an_nvml_that_takes_long():
    """The daemon decides by what it has learned, and need not know more at once."""
    daemon = Daemon(Directory(), *QUICK, TEST_NVML_MS="400")
    equal(cudaw("turns", "set", "residence=0.05").code, 0)      # NVML does not go by the clock of the test
    first = Member(daemon, SIZE, "first")
    first.wait("welcome")
    second = Member(daemon, 0, "second")
    second.grow(SIZE)
    for turn in (1, 2):
        until(lambda: second.mapped == SIZE, 10, f"the second has its memory, turn {turn}")
        until(lambda: first.mapped == SIZE, 10, f"the first has its memory, turn {turn}")


def test_many_that_come_and_go():
    """Each makes the daemon look at its two GPUs, which it looks at one after the other."""
    daemon = Daemon(Directory(), *QUICK, TEST_NVML_MS="150")
    equal(cudaw("turns", "set", "residence=0.05").code, 0)      # NVML does not go by the clock of the test
    other = Member(daemon, lines=["turns 1", a_job(), f"need {UUID[:-2]}01 0 {MIB}", "state running",
                                  "joined"])
    other.wait("welcome")
    first, second = Member(daemon, SIZE, "first"), Member(daemon, 0, "second")
    second.wait("welcome")
    done = threading.Event()

    def come_and_go():
        while not done.is_set():
            with connect(daemon.path) as connection:
                connection.sendall(b"turns 1\nstate running\njoined\n")
                connection.recv(100)

    threading.Thread(target=come_and_go, daemon=True).start()
    try:
        second.grow(SIZE)
        until(lambda: second.mapped == SIZE, 10, "the second has its memory")
        until(lambda: first.mapped == SIZE, 10, "the first has its memory")
    finally:
        done.set()


def test_growth_while_others_are_not_known():
    """The daemon has counted the second's memory as that of others, and cannot look again for a while."""
    daemon = started()
    say_memory(daemon.memory, CAPACITY)
    first = Member(daemon, 400 * MIB, "first", obeys=False)
    first.wait("welcome")
    until(lambda: rows()["gpus"][0]["others"] == CAPACITY - 400 * MIB, 5, "the others are known")
    first.say("state paused")
    first.wait("yield")
    second = Member(daemon, CAPACITY - 400 * MIB, "second")
    second.wait("welcome")
    second.grow(50 * MIB)
    time.sleep(3)
    equal(second.count("no"), 0, "refusals")
    say_memory(daemon.memory, CAPACITY - 400 * MIB)
    first.say(f"freed {400 * MIB}", "mapped 0", "end ok", f"need {UUID} 0 {400 * MIB}")
    equal(second.wait("try"), "try 1")


def test_memory_of_others_during_a_fill():
    """A job that waits for memory of others says all the time that it waits: nothing moves meanwhile."""
    daemon = started()
    member = Member(daemon, SIZE, obeys=False, state="waiting", mapped=0)
    member.wait("yield")
    member.say("mapped 0", "end ok", f"need {UUID} 0 {SIZE}", "want")
    member.wait("room")
    member.say("state resuming")
    say_memory(daemon.memory, 500 * MIB)

    def others_are_seen():
        member.say("progress memory 0 0")
        return rows()["gpus"][0]["others"] == 500 * MIB
    until(others_are_seen, 5, "the daemon sees what others have")


def test_growth():
    """An allocation that never fits fails at once; one that fits may try again."""
    daemon = started()
    member = Member(daemon, SIZE, "job")
    member.wait("welcome")
    member.say(f"grow 7 {UUID} {100 * MIB}")
    equal(member.wait("try"), "try 7")
    member.say(f"grow 8 {UUID} {CAPACITY}")
    equal(member.wait("no"), "no 8")
    kinds = [event["event"] for event in events()]
    equal(kinds, ["joined", "grows", "grows", "refused"])


def test_what_is_not_expected():
    daemon = started()
    for lines in (["turns x"], ["hello"], ["turns"], ["turns 1", "list"], ["turns 1", "need GPU-1 2 3"],
                  ["turns 1", "weight 0"], ["turns 1", "weight 101"], ["turns 1", "class first"],
                  ["turns 1", "state asleep"], ["turns 1", "want"], ["turns 1", "turns 1"],
                  ["turns 1", "joined", "joined"], ["turns 1", "joined", "weight 2"],
                  ["turns 1", "joined", "class interactive"], ["turns 1", "joined", "name other"],
                  ["turns 1", "joined", "id 123456"], ["turns 1", "joined", "command other"],
                  ["turns 1", "joined", f"need {UUID} -1 2"],
                  ["events often"], ["\0"], ["x" * 5000]):
        with connect(daemon.path) as connection:
            connection.sendall("".join(f"{line}\n" for line in lines).encode())
            answer = hear_all(connection).splitlines()
        check(answer and answer[-1].startswith(b"end invalid "), f"{lines}: {answer}")
    # Words that only a later version knows are skipped.
    member = Member(daemon, lines=["turns 1", "colour green", "joined"])
    member.wait("welcome")
    equal(len(rows()["members"]), 1)


def invented(count):
    """UUIDs of GPUs that do not exist."""
    return [f"GPU-00000000-0000-0000-0000-{number:012x}" for number in range(count)]


def test_more_gpus_than_there_can_be():
    needs = [f"need {uuid} 0 0" for uuid in invented(64)]
    member = Member(started(), lines=("turns 1", "id abcdef", "pid 7", *needs))
    equal(member.wait("end"), "end unsupported there are too many GPUs")
    equal(rows()["members"], [])


def knows_one():
    """A daemon whose NVML knows one GPU."""
    return Daemon(Directory(), *QUICK, TEST_NVML_ONLY=UUID)


def liar(daemon, gpus=16):
    """A member with memory on so many GPUs, of which NVML has said that it knows none."""
    uuids = invented(gpus)
    needs = [f"need {uuid} {1 << 40} {1 << 40}" for uuid in uuids]
    member = Member(daemon, name="liar", obeys=False,
                    lines=("turns 1", a_job(), "name liar", *needs, "state running", "joined"))
    # As its memory seems to move, what NVML says counts less.
    member.say("state pausing", f"grow 1 {uuids[0]} 1")
    equal(member.wait("no"), "no 1", "the answer to an allocation where nobody takes turns")
    return member


def hears_why(member, uuid):
    equal(member.wait("end"), f"end unsupported NVML does not know {uuid}, and there are too many GPUs")
    until(lambda: member.closed, 5, "the connection ends")


def test_growth_on_a_gpu_that_nvml_does_not_know():
    """Nobody gives memory there, so that it fails as natively; and where there is no NVML."""
    for daemon, uuid in ((knows_one(), invented(1)[0]), (Daemon(Directory(), *QUICK, TEST_NVML_FILE="/none"), UUID)):
        member = Member(daemon, lines=("turns 1", a_job(), f"need {uuid} {SIZE} {SIZE}", "state running", "joined"))
        member.say(f"grow 1 {uuid} {SIZE}")
        equal((member.wait("no"), member.count("try")), ("no 1", 0))
        daemon.process.terminate()
        daemon.process.wait()


def test_gpus_that_do_not_exist():
    """They make way for one that does, and the jobs that told of them end."""
    daemon = knows_one()
    uuids = invented(16)
    joining = Member(daemon, lines=("turns 1", f"need {uuids[0]} 0 0"))
    other = Member(daemon, lines=("turns 1", a_job(), f"need {uuids[1]} 0 0", "state running", "joined"))
    joined = liar(daemon)
    first = Member(daemon, SIZE, "first")
    first.wait("welcome")
    for member in (joining, joined):
        hears_why(member, uuids[0])
    dropped, = [event for event in events() if event["event"] == "dropped"]
    equal((dropped["name"], dropped["text"]),
          ("liar", f"NVML does not know {uuids[0]}, and there are too many GPUs"))
    second = Member(daemon, 0, "second")
    second.grow(SIZE)
    for turn in (1, 2):
        daemon.until(lambda: second.mapped == SIZE, f"the second has its memory, turn {turn}")
        daemon.until(lambda: first.mapped == SIZE, f"the first has its memory, turn {turn}")
    equal((other.closed, len(rows()["members"])), (False, 3))


def test_a_drain_beside_gpus_that_do_not_exist():
    daemon = knows_one()
    member = liar(daemon)
    equal(daemon.ask(f"drain {UUID}"), ["end ok"])
    hears_why(member, invented(1)[0])
    # It stays drained, whatever jobs tell of.
    needs = [f"need {uuid} 0 0" for uuid in invented(16)]
    Member(daemon, lines=("turns 1", *needs)).wait("end")
    equal([gpu["state"] for gpu in rows()["gpus"] if gpu["uuid"] == UUID], ["drained"])


def test_one_gpu_too_many():
    """The job that tells of it is the one that ends."""
    for line in (f"need {UUID} 0 0", f"grow 2 {UUID} 1", f"pinned 2 {UUID} 1"):
        member = liar(knows_one())
        member.say(line, "ping")
        hears_why(member, invented(1)[0])
        equal((member.count("pong"), rows()["members"]), (0, []))


def test_a_gpu_whose_memory_moves():
    """NVML knows it, even if the daemon has not taken the first answer yet."""
    daemon = knows_one()
    mover = Member(daemon, lines=("turns 1", a_job(), "state running", "joined"))
    mover.say(f"need {UUID} 0 0", "state pausing", "ping")
    mover.wait("pong")
    uuids = invented(16)
    other = liar(daemon, 15)
    other.say(f"need {uuids[15]} 0 0")
    hears_why(other, uuids[0])
    equal(mover.closed, False)


def test_growth_keeps_its_gpu():
    """Nobody else has told of the GPU, and NVML has said nothing of it yet."""
    daemon = Daemon(Directory(), *QUICK, TEST_NVML_MS="150")
    member = Member(daemon, lines=["turns 1", a_job(), "state running", "joined"])
    member.wait("welcome")
    member.grow(SIZE)
    member.say("ping")
    member.wait("pong")
    other = Member(daemon, lines=("turns 1", *(f"need {uuid} 0 0" for uuid in invented(16)), "joined"))
    equal(other.wait("end"), "end unsupported there are too many GPUs")
    equal(member.wait("try"), "try 1")


def test_another_version_is_refused_by_name():
    member = Member(started(), lines=["turns 2", "joined"])
    equal(member.wait("end"), "end invalid this daemon speaks version 1, the job 2")
    until(lambda: member.closed, 5, "the connection ends")


def test_peers_that_say_nothing():
    """They are dropped, sooner if they take all places: so they keep others out for a moment only."""
    patient, daemon = started(), started()
    began = time.monotonic()
    some = [connect(patient.path) for _ in range(100)]
    patient.passes(0.6)
    dropped = select.select([some[0]], [], [], 0)[0]
    check(not dropped or time.monotonic() - began > 4, "one is dropped though there are places")
    many = [connect(daemon.path) for _ in range(300)]
    many[254].sendall(b"turns 1\nname one\nstate running\njoined\n")
    contains(many[254].recv(100), b"welcome")   # all places are taken
    daemon.passed_ms += 600
    daemon.set_clock()
    many[255].sendall(b"list\n")
    hear_all(many[255])
    check(select.select(many[:254], [], [], 0)[0], "none is dropped")
    member = Member(daemon)
    member.wait("welcome")
    for connection in some + many:
        connection.close()


def test_a_process_that_has_ended_is_not_another():
    """It ends before the daemon lets it in, another process gets its PID, and a child has its connection."""
    daemon = started()
    daemon.process.send_signal(signal.SIGSTOP)
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        connection = connect(daemon.path)
        connection.sendall(f"turns 1\nname gone\nneed {UUID} {SIZE} {SIZE}\nstate running\njoined\n".encode())
        child = subprocess.Popen(["sleep", "1000"], pass_fds=[connection.fileno()])
        os.write(write, str(child.pid).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    child = int(os.read(read, 100))
    try:
        sleeping_as(pid)
        daemon.process.send_signal(signal.SIGCONT)
        until(lambda: [event["event"] for event in events()] == ["joined", "left"], 5, "it has left")
        equal(rows()["members"], [])
    finally:
        daemon.process.send_signal(signal.SIGCONT)
        os.kill(child, signal.SIGKILL)


def test_those_who_do_not_read_are_dropped():
    daemon = started()
    member = Member(daemon)
    member.wait("welcome")
    deaf = connect(daemon.path)
    deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    deaf.sendall(b"events follow\n")
    for number in range(0, 3000, 50):
        member.say(*(f"grow {number + n} {UUID} {2 * CAPACITY}" for n in range(50)))
        member.wait("no", number + 50)
    heard = hear_all(deaf)
    check(heard.count(b"\n") < 6000, "the one that does not read heard everything")
    equal(row("job")["state"] != "", True)


def test_there_is_one_daemon():
    directory = Directory()
    daemon = Daemon(directory)
    second = Daemon(directory)
    code, said = second.wait_end()
    equal(code, 1)
    contains(said, "another daemon already listens there")
    equal(daemon.process.poll(), None)
    # One that was killed leaves its socket behind.
    daemon.process.kill()
    daemon.process.wait()
    Member(Daemon(directory)).wait("welcome")


def test_a_socket_that_is_removed():
    """It listens there again, also in a directory that was removed and made again."""
    for remove in (lambda: os.unlink(daemon.path), lambda: shutil.rmtree(directory.path)):
        directory = Directory()
        daemon = Daemon(directory)
        members = [Member(daemon)]
        members[0].wait("welcome")
        remove()
        daemon.passed_ms += 1000
        daemon.set_clock()
        until(daemon.answers, 5, "it listens again")
        members.append(Member(daemon))
        members[1].wait("welcome")
        equal(len([line for line in daemon.ask("list") if line.startswith("member ")]), 2)
        equal(Daemon(directory).wait_end()[0], 1, "the exit code of a second daemon")


def test_a_socket_that_is_removed_while_nobody_is_connected():
    directory = Directory()
    daemon = Daemon(directory)
    os.unlink(daemon.path)
    daemon.passed_ms += 10000
    daemon.set_clock()
    until(daemon.answers, 5, "it listens again")
    contains(daemon.says(), "listens there again")


def test_a_socket_that_cannot_be_made_again():
    """It says so once, and tries again."""
    directory = Directory()
    daemon = Daemon(directory)
    member = Member(daemon)
    member.wait("welcome")
    shutil.rmtree(directory.path)
    with open(directory.path, "w", encoding="utf-8"):
        pass
    for _ in range(3):
        daemon.passed_ms += 1000
        daemon.set_clock()
        member.say("ping")
        member.wait("pong")
    contains(daemon.says(), "no job finds the daemon")
    os.unlink(directory.path)
    daemon.passed_ms += 1000
    daemon.set_clock()
    contains(daemon.says(), "listens there again")


def test_one_whose_lock_is_removed():
    """A second daemon leaves the socket alone, as somebody answers there."""
    directory = Directory()
    daemon = Daemon(directory)
    os.unlink(f"{daemon.path}.lock")
    contains(Daemon(directory).wait_end()[1], "another daemon already listens there")
    Member(daemon).wait("welcome")


def test_one_whose_directory_another_daemon_has():
    """It serves its members, ends after them, and leaves the socket of the other one alone."""
    directory = Directory()
    first = Daemon(directory)
    member = Member(first)
    member.wait("welcome")
    stop(first.process.pid)
    shutil.rmtree(directory.path)
    os.mkdir(directory.path, 0o700)
    second = Daemon(directory)
    first.process.send_signal(signal.SIGCONT)
    first.passed_ms += 1000
    first.set_clock()
    contains(first.says(), "another daemon listens there now")
    member.say("ping")
    member.wait("pong")
    member.hang_up()
    equal(first.wait_end(), (0, ""))
    Member(second).wait("welcome")


def test_it_ends_after_its_last_member():
    daemon = started()
    member = Member(daemon)
    member.wait("welcome")
    daemon.passes(600)
    member.hang_up()
    daemon.passes(LINGER_S - 1)
    equal(daemon.process.poll(), None)

    def ends():
        """Nobody asks it from here on. It may see only now that those who asked have gone."""
        daemon.passed_ms += 1000 * LINGER_S
        daemon.set_clock()
        return daemon.process.poll() is not None

    until(ends, 30, "it ends")
    equal(daemon.wait_end()[0], 0)
    check(not os.path.exists(daemon.path), "its socket is still there")


def test_it_ends_by_a_signal():
    daemon = started()
    member = Member(daemon)
    member.wait("welcome")
    daemon.process.send_signal(signal.SIGTERM)
    equal(daemon.wait_end()[0], 0)
    until(lambda: member.closed, 5, "the member's connection ends")


def test_a_socket_from_systemd():
    path = os.path.join(Directory().path, "node.sock")
    with daemon_of_systemd(path) as pid:
        time.sleep(0.5)     # it does not end by itself
        with connect(path) as connection:
            connection.sendall(b"list\n")
            contains(connection.recv(100).decode(), f"daemon {pid} ")


def test_share():
    started()
    result = cudaw("turns")
    equal((result.code, result.err, len(result.out.splitlines())), (0, "", 1))
    daemon = started()
    members = [Member(daemon, SIZE, "train", lines=[
        "turns 1", "id abc123", "name train", "pid 7", "command python train.py", "class interactive",
        "weight 3", f"need {UUID} {SIZE} {SIZE}", "state running", "joined"])]
    members.append(Member(daemon, 0, "other"))
    for member in members:
        member.wait("welcome")
    found = rows()
    check_documented("turns", found)
    train = {member["name"]: member for member in found["members"]}["train"]
    equal([train[key] for key in ("pid", "uid", "id", "command", "class", "weight")],
          [os.getpid(), os.getuid(), "abc123", "python train.py", "interactive", 3])
    equal(train["gpu"], [{"uuid": UUID, "mapped": SIZE, "total": SIZE}])
    result = cudaw("turns")
    contains(result.out, f"{UUID}: 900 MiB of 1000 MiB for the jobs; others have 0 B\n")
    check(any(line.split()[:2] == ["abc123", "train"] and line.endswith("python train.py")
              for line in result.out.splitlines()), result.out)


def test_yield():
    daemon = started("--quantum", "1000")
    first = Member(daemon, SIZE, "first")
    first.wait("welcome")
    second = Member(daemon, 0, "second")
    second.grow(SIZE)
    daemon.passes(900)
    equal(first.count("yield"), 0)
    result = cudaw("yield", "--json", "first")
    equal((result.code, result.err), (0, ""))
    check_documented("yield", json.loads(result.out))
    first.wait("yield")
    until(lambda: second.mapped == SIZE, 5, "the second has its memory")
    with open("/dev/full", "w", encoding="ascii") as full:
        for args in ["turns", "--json", "set", "quantum=1000"], ["yield", "--json", "second"]:
            done = subprocess.run([CUDAW, *args], stdout=full, stderr=subprocess.PIPE, text=True, timeout=LIMIT_S,
                                  check=False)
            equal((args, done.returncode, done.stderr), (args, 0, "cudaw: stdout: No space left on device\n"))
    result = cudaw("yield", "nobody", "second")
    equal(result.code, 3)
    contains(result.err, "nobody: no such job takes turns")
    until(lambda: first.mapped == SIZE, 5, "the first has its memory")


def test_events():
    directory = Directory()
    daemon = Daemon(directory, *QUICK)
    follow = ends_with_us(subprocess.Popen([CUDAW, "events", "--follow", "--json"], text=True,
                                           stdout=subprocess.PIPE))
    member = Member(daemon)
    member.wait("welcome")
    event = json.loads(follow.stdout.readline())
    check_documented("events", event, every=False)
    equal([event[key] for key in ("event", "pid", "name", "text", "number")],
          ["joined", os.getpid(), "job", "./job --size", 1])
    check(abs(event["unix_ms"] / 1000 - time.time()) < 60, f"the time is {event['unix_ms']}")
    member.hang_up()
    equal(json.loads(follow.stdout.readline())["event"], "left")
    contains(cudaw("events").out, f"{os.getpid()} (job)  joined: ./job --size\n")
    for number in (1, 2):   # it goes on with another daemon, whose numbers begin again
        daemon.process.terminate()
        daemon.process.wait()
        until(lambda: not os.path.exists(os.path.join(directory.path, "cudawd.sock")), 10, "it is gone")
        daemon = Daemon(directory, *QUICK)
        Member(daemon).wait("welcome")
        event = json.loads(follow.stdout.readline())
        equal((event["event"], event["number"]), ("joined", 1), f"with daemon {number}")


def test_events_have_their_words():
    """Whatever a job says, an event has one ID and one name."""
    daemon = started()
    for lines in (["command ./job"], ["id a b c", "name d e", "command ./job"]):
        Member(daemon, lines=["turns 1", *lines, "joined"]).wait("welcome")
    equal([[event[key] for key in ("event", "id", "name", "text")] for event in events()],
          [["joined", None, None, "./job"], ["joined", "a_b_c", "d_e", "./job"]])


def test_kinds_of_events():
    """All that the daemon's source has are single words, which the page and the help explain."""
    sources = ""
    for path in glob.glob(os.path.join(TESTS, "..", "tools", "daemon", "**", "*.c"), recursive=True):
        with open(path, encoding="utf-8") as file:
            sources += file.read()
    kinds = set(KIND.findall(sources))
    check({"joined", "set", "undrained"} <= kinds, f"the kinds are {kinds}")
    with open(os.path.join(TESTS, "..", "docs", "json.md"), encoding="utf-8") as file:
        page = file.read().partition("| `event` | ")[2].partition("\n")[0]
    explained = set(re.findall(r"\b[a-z]+\b", cudaw("events", "--help").out))
    equal(sorted(kinds - set(re.findall(r"`(\w+)`", page))), [], "the kinds that docs/json.md has not")
    with open(os.path.join(TESTS, "..", "tools", "daemon", "hooks", "events.h"), encoding="utf-8") as file:
        equal(sorted(kinds | {"drained"}), sorted(re.findall(r'X\("(\w+)"\)', file.read())), "the kinds that hooks can name")
    equal(sorted(kinds - explained), [], "the kinds that the help has not")


def test_no_daemon():
    directory = Directory()
    for args in (["turns"], ["yield", "x"]):
        result = cudaw(*args)
        equal((args, result.code, result.out), (args, 1, ""))
        contains(result.err, f"{directory.path}/cudawd.sock: no cudawd answers")
    result = cudaw("events")    # jobs have events, too
    equal((result.code, result.out, result.err), (0, "", ""))


def lingering():
    """The environment of a command that starts a daemon, which does not end before the next one asks it."""
    home = scratch()
    with open(os.path.join(home, "cudaw.conf"), "w", encoding="ascii") as file:
        file.write("[turns]\nlinger = 60\n")
    return {"XDG_CONFIG_HOME": home}


def filters(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        return re.findall("Seccomp:.*", file.read())


def test_run_starts_it():
    """One, by however many; without anything of its parent's; it ends after the last of them."""
    if SANITIZED:
        return
    directory, env = Directory(), {**os.environ, **lingering(), "CUDAW_JOB": "abcdef"}
    read, write = os.pipe()
    jobs = [ends_with_us(subprocess.Popen([CUDAW, "run", "--snapshot", "--turns", "--class", "interactive", "--weight",
                                           "2", "--", "sh", "-c", "env | grep CUDAW_TURNS; sleep 3"],
                                          pass_fds=[write], stdout=subprocess.PIPE, text=True, env=env))
            for _ in range(3)]
    os.close(write)
    for job in jobs:
        equal([job.stdout.readline().partition("=")[0] for _ in range(3)].count(""), 0)
    pid = rows()["pid"]
    equal(os.readlink(f"/proc/{pid}/exe"), os.path.realpath(CUDAWD))
    equal(os.getsid(pid) != os.getsid(0), True)
    check(os.readlink(f"/proc/self/fd/{read}") not in descriptors(pid).values(), "it has a pipe of its parent")
    with open(f"/proc/{pid}/environ", encoding="utf-8") as file:
        check("CUDAW_JOB=" not in file.read(), "it belongs to a job")
    equal(filters(pid), filters("self"))
    for job in jobs:
        job.kill()
        job.wait()
    os.kill(pid, signal.SIGTERM)
    until(lambda: not os.path.exists(f"/proc/{pid}"), 10, "cudawd ends")
    check(os.path.exists(f"{directory.path}/cudawd.sock.lock"), "there is no lock")


def test_a_long_log_is_put_aside():
    """When the next daemon begins; so there are two, as of a journal."""
    if SANITIZED:
        return
    log = f"{Directory().path}/cudawd.log"
    for size, older in (1, False), (2 * MIB, True):
        with open(log, "wb") as file:
            file.truncate(size)
        equal(cudaw("run", "--turns", "true", env=lingering()).code, 0)
        os.kill(rows()["pid"], signal.SIGTERM)
        until(lambda: cudaw("turns").code, 10, "cudawd ends")
        equal(os.path.exists(f"{log}.1"), older, f"an older log beside one of {size} bytes")
    equal((os.path.getsize(f"{log}.1"), os.path.getsize(log) < MIB), (2 * MIB, True), "their sizes")


def test_a_daemon_that_is_missing_is_said():
    Directory()
    for daemon, starter in (("user", "'cudaw run --turns' starts it"), ("/no/such", "'cudawd --socket' with this path"),
                           ("node", "root starts it: 'cudawd --socket /run/cudaw/cudawd.sock'")):
        env = {"CUDAW_TURNS": daemon}
        commands = [("turns",), ("doctor",)] + [("run", "--turns", "true")] * (daemon != "user")
        for command in commands:
            result = cudaw(*command, env=env)
            contains(result.out + result.err, "no cudawd answers")
            contains(result.out + result.err, starter)


def test_run_says_what_is_not_heeded():
    Directory()
    for option, value, expected in (("--class", "fast", "interactive or batch"), ("--weight", "0", "a whole number")):
        result = cudaw("run", option, value, "true")
        equal(result.code, 2)
        contains(result.err, f"{option} '{value}': expected {expected}")
        check("is used" not in result.err, result.err)
    if SANITIZED:
        return
    for option, value in (("--class", "interactive"), ("--weight", "2")):
        result = cudaw("run", option, value, "true")
        equal(result.code, 0)
        contains(result.err, "add --turns")


def test_run_says_how_to_join():
    if SANITIZED:
        return
    Directory()
    result = cudaw("run", "--turns", "--class", "interactive", "--weight", "2", "--", "sh", "-c",
                   "env | grep CUDAW_TURNS | sort", env=lingering())
    equal(result.out, "CUDAW_TURNS=user\nCUDAW_TURNS_CLASS=interactive\nCUDAW_TURNS_WEIGHT=2\n")
    equal(cudaw("run", "--turns", "true", env={"CUDAW_TURNS": "/no/such"}).code, 0)
    os.kill(rows()["pid"], signal.SIGTERM)


if __name__ == "__main__":
    main()
