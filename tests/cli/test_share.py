#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cudawd, with stand-ins for jobs, and the commands that ask it."""
import json
import os
import signal
import socket
import subprocess
import time

from clilib import BUILD, CUDAW, Directory, contains, cudaw, ends_with_us, equal, main
from harness import check, until
from json_docs import check_documented
from memberlib import CAPACITY, CUDAWD, MIB, TOTAL, UUID, Daemon, Member, connect, say_memory

QUICK = ("--quantum", "0.2", "--residence", "0.05", "--linger", "0.3")
SANITIZED = bool(os.environ.get("SANITIZE"))    # the shell cannot load what is built so
SIZE = 600 * MIB    # two do not fit


def started(*options):
    return Daemon(Directory(), *QUICK, *options)


def rows():
    result = cudaw("share", "--json")
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
    equal(first.wait("welcome"), "welcome 1000")
    second = Member(daemon, 0, "second", book=book)
    second.wait("welcome")
    time.sleep(0.3)
    equal((first.count("yield"), second.count("room")), (0, 0))
    second.grow(SIZE)
    first.wait("watch")
    for turn in (1, 2):
        first.wait("yield", turn)
        until(lambda: second.mapped == SIZE, 5, "the second has its memory")
        second.wait("yield", turn)
        until(lambda: first.mapped == SIZE, 5, "the first has its memory")
    check(book["most"] <= CAPACITY, f"{book['most']} bytes were mapped of {CAPACITY}")
    first.hang_up()
    until(lambda: second.mapped == SIZE, 5, "the second has its memory")
    time.sleep(0.5)
    equal(second.mapped, SIZE)
    second.wait("unwatch")


def test_two_that_fit_are_left_alone():
    daemon = started()
    members = [Member(daemon, 400 * MIB, name) for name in ("first", "second")]
    for member in members:
        member.wait("welcome")
    time.sleep(0.5)
    equal([member.heard for member in members], [["welcome 1000"]] * 2)


def test_one_that_gives_is_killed():
    """What it had is there for the other one."""
    daemon = started()
    first = Member(daemon, SIZE, "first", obeys=False)
    first.wait("welcome")
    second = Member(daemon, 0, "second")
    second.grow(SIZE)
    first.wait("yield")
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
    first.wait("yield")
    second.hang_up()
    until(lambda: first.mapped == SIZE, 5, "the first has its memory")
    # One that gets its memory back.
    second = Member(daemon, 0, "second")
    second.grow(SIZE)
    until(lambda: second.mapped == SIZE, 5, "the second has its memory")
    first.obeys = False
    first.wait("room", 2)
    first.hang_up()
    until(lambda: second.mapped == SIZE, 5, "the second has its memory")


def test_one_that_is_silent_is_left_alone():
    daemon = started("--silence", "0.3")
    first = Member(daemon, SIZE, "first", obeys=False)
    first.wait("welcome")
    # Its memory is there, whatever becomes of it.
    say_memory(daemon.memory, SIZE)
    second = Member(daemon, 0, "second")
    second.grow(SIZE)
    yielded = first.wait("yield")
    until(lambda: first.closed, 20, f"the silent one is dropped, after {yielded}")
    contains(first.heard[-1], "end timeout ")
    # As natively: the memory is not there.
    equal(second.wait("no"), "no 1")
    check("silent" in [event["event"] for event in events()], "no event tells it")
    say_memory(daemon.memory, 0)
    time.sleep(0.1)     # older samples count no more
    second.grow(SIZE)
    until(lambda: second.mapped == SIZE, 5, "the second has its memory")


def test_one_that_cannot_give_runs_on():
    daemon = started()
    first = Member(daemon, SIZE, "first", obeys=False)
    first.wait("welcome")
    second = Member(daemon, 0, "second")
    second.grow(SIZE)
    first.wait("yield")
    first.say("end timeout kernels did not end")
    time.sleep(0.3)
    equal(second.mapped, 0)
    failed, = [event for event in events() if event["event"] == "failed"]
    contains(failed["text"], "timeout kernels did not end")
    first.hang_up()
    until(lambda: second.mapped == SIZE, 5, "the second has its memory")


def test_memory_of_others_counts():
    """No more fits than they leave; and it is noticed when they go."""
    daemon, little = started(), 60 * MIB
    say_memory(daemon.memory, 500 * MIB + little)
    other = Member(daemon, little, "other", lines=(
        "share 1", "id abcdef", "name other", "pid 7", "class interactive",
        f"need {UUID} {little} {little}", "state running", "joined"))
    other.wait("welcome")
    member = Member(daemon, SIZE, "job", state="waiting", mapped=0)
    member.wait("yield")
    time.sleep(0.5)
    check(member.mapped <= CAPACITY - 500 * MIB - little, f"{member.mapped} bytes are mapped")
    equal(row("job")["state"] in ("waits", "enters"), True)
    equal(rows()["gpus"], [{"uuid": UUID, "total": TOTAL, "used": 500 * MIB + little, "others": 500 * MIB,
                            "capacity": CAPACITY - 500 * MIB}])
    say_memory(daemon.memory, little)
    until(lambda: member.mapped == SIZE, 5, "the member has its memory")


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
    for lines in (["share x"], ["hello"], ["share"], ["share 1", "list"], ["share 1", "need GPU-1 2 3"],
                  ["share 1", "weight 0"], ["share 1", "weight 101"], ["share 1", "class first"],
                  ["share 1", "state asleep"], ["share 1", "want"], ["share 1", "share 1"],
                  ["share 1", "joined", "joined"], ["share 1", "joined", f"need {UUID} -1 2"],
                  ["events often"], ["\0"], ["x" * 5000]):
        with connect(daemon.path) as connection:
            connection.sendall("".join(f"{line}\n" for line in lines).encode())
            answer = hear_all(connection).splitlines()
        check(answer and answer[-1].startswith(b"end invalid "), f"{lines}: {answer}")
    # Words that only a later version knows are skipped.
    member = Member(daemon, lines=["share 1", "colour green", "joined"])
    member.wait("welcome")
    equal(len(rows()["members"]), 1)


def test_more_gpus_than_there_can_be():
    needs = [f"need GPU-00000000-0000-0000-0000-{number:012x} 0 0" for number in range(64)]
    member = Member(started(), lines=("share 1", "id abcdef", "pid 7", *needs))
    equal(member.wait("end"), "end unsupported there are too many GPUs")
    equal(rows()["members"], [])


def test_another_version_is_refused_by_name():
    member = Member(started(), lines=["share 2", "joined"])
    equal(member.wait("end"), "end invalid this daemon speaks version 1, the job 2")
    until(lambda: member.closed, 5, "the connection ends")


def test_peers_that_say_nothing():
    """They are dropped; nor do they keep others out."""
    daemon = started("--linger", "60")
    silent = [connect(daemon.path) for _ in range(300)]
    silent[0].settimeout(30)
    equal(silent[0].recv(1), b"")
    member = Member(daemon)
    member.wait("welcome")
    for connection in silent:
        connection.close()


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
    daemon = Daemon(directory, "--linger", "20")
    second = Daemon(directory)
    code, said = second.wait_end()
    equal(code, 1)
    contains(said, "another daemon already listens there")
    equal(daemon.process.poll(), None)
    # One that was killed leaves its socket behind.
    daemon.process.kill()
    daemon.process.wait()
    Member(Daemon(directory)).wait("welcome")


def test_it_ends_after_its_last_member():
    daemon = started()
    member = Member(daemon)
    member.wait("welcome")
    time.sleep(0.6)
    equal(daemon.process.poll(), None)
    member.hang_up()
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
    directory = Directory()
    path = os.path.join(directory.path, "node.sock")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(8)

    def pass_socket():
        os.dup2(listener.fileno(), 3)
        os.environ.update(LISTEN_FDS="1", LISTEN_PID=str(os.getpid()))
        os.execv(CUDAWD, [CUDAWD, "--linger", "0.1"])

    pid = os.fork()
    if pid == 0:
        pass_socket()
    listener.close()
    try:
        time.sleep(0.5)     # it does not end by itself
        with connect(path) as connection:
            connection.sendall(b"list\n")
            contains(connection.recv(100).decode(), f"daemon {pid} ")
    finally:
        os.kill(pid, signal.SIGTERM)
        equal(os.waitpid(pid, 0)[1], 0)


def test_share():
    started()
    result = cudaw("share")
    equal((result.code, result.err, len(result.out.splitlines())), (0, "", 1))
    daemon = started()
    members = [Member(daemon, SIZE, "train", lines=[
        "share 1", "id abc123", "name train", "pid 7", "command python train.py", "class interactive",
        "weight 3", f"need {UUID} {SIZE} {SIZE}", "state running", "joined"])]
    members.append(Member(daemon, 0, "other"))
    for member in members:
        member.wait("welcome")
    found = rows()
    check_documented("share", found)
    train = {member["name"]: member for member in found["members"]}["train"]
    equal([train[key] for key in ("pid", "uid", "id", "command", "class", "weight")],
          [os.getpid(), os.getuid(), "abc123", "python train.py", "interactive", 3])
    equal(train["gpu"], [{"uuid": UUID, "mapped": SIZE, "total": SIZE}])
    result = cudaw("share")
    contains(result.out, f"{UUID}: 900 MiB of 1000 MiB for the jobs; others have 0 B\n")
    check(any(line.split()[:2] == ["abc123", "train"] and line.endswith("python train.py")
              for line in result.out.splitlines()), result.out)


def test_yield():
    daemon = started("--quantum", "1000")
    first = Member(daemon, SIZE, "first")
    first.wait("welcome")
    second = Member(daemon, 0, "second")
    second.grow(SIZE)
    time.sleep(0.3)
    equal(first.count("yield"), 0)
    result = cudaw("yield", "--json", "first")
    equal((result.code, result.err), (0, ""))
    check_documented("yield", json.loads(result.out))
    first.wait("yield")
    until(lambda: second.mapped == SIZE, 5, "the second has its memory")
    result = cudaw("yield", "nobody", "second")
    equal(result.code, 3)
    contains(result.err, "nobody: no such job takes turns")
    until(lambda: first.mapped == SIZE, 5, "the first has its memory")


def test_events():
    daemon = started()
    follow = ends_with_us(subprocess.Popen([CUDAW, "events", "--follow", "--json"], text=True,
                                           stdout=subprocess.PIPE))
    member = Member(daemon)
    member.wait("welcome")
    event = json.loads(follow.stdout.readline())
    check_documented("events", event)
    equal([event[key] for key in ("event", "pid", "name", "text", "number")],
          ["joined", os.getpid(), "job", "./job --size", 1])
    check(abs(event["unix_ms"] / 1000 - time.time()) < 60, f"the time is {event['unix_ms']}")
    member.hang_up()
    equal(json.loads(follow.stdout.readline())["event"], "left")
    contains(cudaw("events").out, f"{os.getpid()} (job)  joined: ./job --size\n")
    daemon.process.terminate()
    equal(follow.wait(30), 1)


def test_no_daemon():
    directory = Directory()
    for args in (["share"], ["events"], ["yield", "x"]):
        result = cudaw(*args)
        equal((args, result.code, result.out), (args, 1, ""))
        contains(result.err, f"{directory.path}/cudawd.sock: no cudawd answers")


def test_run_starts_it():
    """One, by however many; without anything of its parent's; it ends after the last of them."""
    if SANITIZED:
        return
    directory = Directory()
    read, write = os.pipe()
    jobs = [ends_with_us(subprocess.Popen([CUDAW, "run", "--share", "--class", "interactive", "--weight",
                                           "2", "--", "sh", "-c", "env | grep CUDAW_SHARE; sleep 3"],
                                          pass_fds=[write], stdout=subprocess.PIPE, text=True))
            for _ in range(3)]
    os.close(write)
    for job in jobs:
        equal([job.stdout.readline().partition("=")[0] for _ in range(3)].count(""), 0)
    pid = rows()["pid"]
    equal(os.readlink(f"/proc/{pid}/exe"), os.path.realpath(CUDAWD))
    equal(os.getsid(pid) != os.getsid(0), True)
    descriptors = {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}
    check(os.readlink(f"/proc/self/fd/{read}") not in descriptors, "it has a pipe of its parent")
    for job in jobs:
        job.kill()
        job.wait()
    os.kill(pid, signal.SIGTERM)
    until(lambda: not os.path.exists(f"/proc/{pid}"), 10, "cudawd ends")
    check(os.path.exists(f"{directory.path}/cudawd.sock.lock"), "there is no lock")


def test_run_says_how_to_join():
    if SANITIZED:
        return
    Directory()
    result = cudaw("run", "--share", "--class", "interactive", "--weight", "2", "--", "sh", "-c",
                   "env | grep CUDAW_SHARE | sort")
    equal(result.out, "CUDAW_SHARE=user\nCUDAW_SHARE_CLASS=interactive\nCUDAW_SHARE_WEIGHT=2\n")
    equal(cudaw("run", "--share", "true", env={"CUDAW_SHARE": "/no/such"}).code, 0)
    os.kill(rows()["pid"], signal.SIGTERM)


if __name__ == "__main__":
    main()
