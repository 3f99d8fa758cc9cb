#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How cudawd is set up: its file of settings, and what it is told while it runs."""
import json
import os
import pwd
import re
import select
import signal
import subprocess
import textwrap

from clilib import Directory, contains, cudaw, equal, main, scratch
from harness import PATIENCE, TESTS, check, until
from json_docs import check_documented
from memberlib import CUDAWD, MIB, NOBODY, UUID, Daemon, Member, a_job, as_nobody, connect, node_daemon

SIZE = 600 * MIB    # two do not fit
QUICK = "quantum = 0.2\n"


def written(text, path=None):
    """A file with that text."""
    path = path or os.path.join(scratch(), "cudaw.conf")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def shown():
    result = cudaw("turns", "--json")
    equal((result.code, result.err), (0, ""))
    return json.loads(result.out)


def gpu():
    found, = shown()["gpus"]
    return found


def row(name):
    return {member["name"]: member for member in shown()["members"]}[name]


def events(kind):
    """What the events of that kind say."""
    lines = cudaw("events", "--json").out.splitlines()
    return [event["text"] for event in map(json.loads, lines) if event["event"] == kind]


def joins(daemon, name="job", size=0, **claims):
    lines = ["turns 1", a_job(), f"name {name}", "pid 7",
             *(f"{key} {value}" for key, value in claims.items()),
             f"need {UUID} {size} {size}", "state running", "joined"]
    member = Member(daemon, size, name, lines=lines)
    member.wait("welcome")
    return member


def fails(*options, env=None):
    """What a daemon says that does not begin."""
    done = subprocess.run([CUDAWD, *options], env={**os.environ, **(env or {})}, capture_output=True,
                          text=True, timeout=60 * PATIENCE, check=False)
    equal(done.returncode, 1)
    return done.stderr


def samples(page):
    """The files that a page of docs/ shows: indented, with a section."""
    with open(os.path.join(TESTS, "..", "docs", page), encoding="utf-8") as file:
        blocks = re.findall(r"(?:^(?: {4}.*)?\n)+", file.read(), re.MULTILINE)
    found = [textwrap.dedent(block) for block in blocks]
    return [text for text in found if re.search(r"^\[(turns|gpu|user|group)\b", text, re.MULTILINE)]


def test_options_count_before_the_file():
    path = written("[turns]\nidle = 3\nquantum = 500\nlinger = 60\n")
    daemon = Daemon(Directory(), "--conf", path, "--quantum", "0.2")
    first = Member(daemon, SIZE, "first")
    equal(first.wait("welcome"), "welcome 3000")
    second = Member(daemon, 0, "second")
    second.grow(SIZE)
    first.wait_turn("yield")


def test_keys_that_are_no_options():
    for key in ("residence", "silence"):
        done = subprocess.run([CUDAWD, f"--{key}", "3"], capture_output=True, text=True, timeout=60 * PATIENCE,
                              check=False)
        equal(done.returncode, 2)
        contains(done.stderr, f"unrecognized option '--{key}'")


def test_the_users_own_file():
    directory, home = Directory(), scratch()
    os.mkdir(f"{home}/.config")
    written("[turns]\nidle = 4\n", f"{home}/.config/cudaw.conf")
    other = os.path.dirname(written("[turns]\nidle = 5\n"))
    saved = {key: os.environ.get(key) for key in ("HOME", "XDG_CONFIG_HOME")}
    try:
        for env, wanted in (({"XDG_CONFIG_HOME": "", "HOME": home}, 4000),
                            ({"XDG_CONFIG_HOME": other, "HOME": home}, 5000)):
            os.environ.update(env)
            daemon = Daemon(directory)
            equal(Member(daemon).wait("welcome"), f"welcome {wanted}")
            daemon.process.kill()
            daemon.process.wait()
    finally:
        os.environ.update({key: value for key, value in saved.items() if value is not None})


def test_a_wrong_file_lets_no_daemon_begin():
    directory, path = Directory(), written("# turns\n[turns]\nquantum = soon\n")
    said = fails("--conf", path)
    contains(said, f"{path}:3: quantum: expected a number of seconds from 0.001 to 1000000, found 'soon'")
    contains(fails(env={"XDG_CONFIG_HOME": os.path.dirname(path)}), f"{path}:3: quantum: ")
    contains(fails("--conf", f"{path}.none"), f"{path}.none: No such file or directory")
    equal(os.listdir(directory.path), ["cudawd.sock.lock"])


def test_a_daemon_begins_with_what_the_page_shows():
    shown_files = samples("turns.md")
    check(len(shown_files) >= 4, f"docs/turns.md shows {shown_files}")
    for text in shown_files:
        path = written(text.replace("anna", "54321").replace("students", "54321"))
        daemon = Daemon(Directory(), "--conf", path)
        Member(daemon).wait("welcome")


def test_sighup_reads_the_file_again():
    path = written("[turns]\nidle = 3\n")
    daemon = Daemon(Directory(), "--conf", path)
    equal(Member(daemon).wait("welcome"), "welcome 3000")
    written("[turns]\nidle = 2\n", path)
    daemon.process.send_signal(signal.SIGHUP)
    until(lambda: events("set") == [f"{path} was read again"], 5, "an event says so")
    equal(Member(daemon).wait("welcome"), "welcome 2000")
    written("[turns]\nidle = 1\n[shaer]\n", path)
    daemon.process.send_signal(signal.SIGHUP)
    until(lambda: events("rejected"), 5, "an event says so")
    contains(events("rejected")[0], f"{path}:3: expected [turns], [user NAME], ")
    equal(Member(daemon).wait("welcome"), "welcome 2000")
    daemon.process.terminate()
    contains(daemon.wait_end()[1], f"{path}:3: expected [turns], [user NAME], [group @NAME], [gpu UUID] or [hooks], "
                                   "found '[shaer]'; the settings stay as they are")


def test_nobody_reads_the_log():
    path = written("[turns]\n")
    daemon = Daemon(Directory(), "--conf", path)
    daemon.process.stderr.close()
    written("[shaer]\n", path)
    daemon.process.send_signal(signal.SIGHUP)
    until(lambda: events("rejected"), 5, "an event says so")
    Member(daemon).wait("welcome")


def test_what_users_may_claim():
    me = pwd.getpwuid(os.getuid()).pw_name
    group = f"[group @{os.getgid()}]"
    for section in (f"[user {me}]", group, f"{group}\nweight=100\n[user {me}]"):
        path = written(f"{section}\nweight = 4\nclasses = batch\n")
        daemon = Daemon(Directory(), "--conf", path)
        joins(daemon, "much", **{"class": "interactive", "weight": 50})
        joins(daemon, "little", weight=2)
        equal([row("much")[key] for key in ("class", "weight")], ["batch", 4], section)
        equal([row("little")[key] for key in ("class", "weight")], ["batch", 2], section)
        equal(events("limited"), ["its user may not claim the class interactive: batch",
                                  "its user may claim at most the weight 4, not 50"])
    path = written("[user 54321]\nweight = 4\n[group @54321]\nclasses = batch\n")
    daemon = Daemon(Directory(), "--conf", path)
    joins(daemon, "other", **{"class": "interactive", "weight": 50})
    equal([row("other")[key] for key in ("class", "weight")], ["interactive", 50])


def test_a_gpu_without_turns():
    daemon = Daemon(Directory(), "--conf", written(f"[turns]\n{QUICK}[gpu {UUID}]\nturns = no\n"))
    first = joins(daemon, "first", SIZE)
    second = joins(daemon, "second", SIZE)
    second.grow(SIZE)
    equal(second.wait("no"), "no 1")
    equal((first.count("yield"), gpu()["state"]), (0, "excluded"))
    contains(cudaw("turns").out, f"{UUID}: excluded by cudaw.conf, so nobody takes turns there\n")


def test_jobs_of_a_user():
    with node_daemon("--jobs-per-user", "2") as daemon:
        with as_nobody():
            members = [joins(daemon, f"job{number}") for number in range(2)]
            third = Member(daemon, name="third")
            equal(third.wait("end"), "end busy the user has as many jobs here as jobs-per-user allows")
            check(daemon.ask("list")[0].startswith("daemon "), "a command gets no answer")
            idle = [connect(daemon.path) for _ in range(20)]
            answers = [connection.recv(100) for connection in idle[-5:]]
            equal(answers, [b"end busy the user has as many connections as the daemon allows\n"] * 5)
            result = cudaw("turns", env={"CUDAW_TURNS": daemon.path}, user=65534)
            equal((result.code, result.out), (1, ""))
            contains(result.err, "too many connections to this cudawd")
            for connection in idle:
                connection.close()
        joins(daemon, "root")
        members[0].hang_up()
        with as_nobody():
            until(lambda: any(line.startswith("daemon ") for line in daemon.ask("list")), 5, "an answer")
            joins(daemon, "again")


def test_a_full_daemon():
    """It turns users away, but has places for root."""
    with node_daemon("--jobs-per-user", "256") as daemon:
        daemon.ask("list")  # the connection by which it was seen to answer is gone
        with as_nobody():
            many = []
            for _ in range(256):
                many.append(connect(daemon.path))
                many[-1].sendall(b"events follow\n")
            answers = [connection.recv(100) for connection in many[248:]]
            equal(answers, [b"end busy all connections of the daemon are in use\n"] * 8)
            result = cudaw("turns", env={"CUDAW_TURNS": daemon.path}, user="nobody")
            equal((result.code, result.out), (1, ""))
            contains(result.err, "too many connections to this cudawd")
        equal(ordered("set", "idle=3"), "")
        members = [joins(daemon, f"root{number}") for number in range(7)]
        equal([member["name"] for member in shown()["members"]], [member.name for member in members])
        for member in members:
            member.hang_up()
        for connection in many:
            connection.close()
        with as_nobody():
            until(lambda: daemon.ask("list")[0].startswith("daemon "), 5, "an answer")


def test_strangers_that_say_nothing():
    """Root's places are not theirs: so they have to hurry when only those are left."""
    with node_daemon("--jobs-per-user", "256") as daemon:
        daemon.ask("list")  # the connection by which it was seen to answer is gone
        with as_nobody():
            many = [connect(daemon.path) for _ in range(249)]
            equal(many[-1].recv(100), b"end busy all connections of the daemon are in use\n")
        daemon.passes(0.6)
        check(select.select(many[:248], [], [], 0)[0], "none is dropped")
        for connection in many:
            connection.close()


def ordered(*args, code=0):
    """What an order to the daemon says on stderr."""
    result = cudaw("turns", *args)
    equal((args, result.code, result.out), (args, code, ""))
    return result.err


def test_set():
    daemon = Daemon(Directory(), "--quantum", "1000")
    first = joins(daemon, "first", SIZE)
    second = joins(daemon, "second")
    second.grow(SIZE)
    first.wait("watch")
    equal(ordered("set", "idle=3", "quantum=0", code=2),
          "cudaw: quantum: expected a number of seconds from 0.001 to 1000000, found '0'\n")
    contains(ordered("set", "quantom=1", code=2), "expected quantum, idle, ")
    equal(ordered("set", "quantum", code=2), "cudaw: expected KEY=VALUE, found 'quantum'\n")
    equal(Member(daemon).wait("welcome"), "welcome 500")
    equal((events("set"), first.count("yield")), ([], 0))
    equal(ordered("set", "quantum=0.1", "idle=3"), "")
    first.wait_turn("yield")
    equal([member.wait("idle") for member in (first, second)], ["idle 3000"] * 2)
    equal(Member(daemon).wait("welcome"), "welcome 3000")
    equal(events("set"), ["quantum=0.1 idle=3"])
    answer = json.loads(cudaw("turns", "set", "margin=1M", "--json").out)
    check_documented("turns set", answer)
    equal([answer[key] for key in ("request", "code", "message")], ["set", 0, None])


def test_set_stays_when_the_file_is_read_again():
    path = written("[turns]\nidle = 3\n")
    daemon = Daemon(Directory(), "--conf", path)
    ordered("set", "idle=4")
    daemon.process.send_signal(signal.SIGHUP)
    until(lambda: len(events("set")) == 2, 5, "the file is read again")
    equal(Member(daemon).wait("welcome"), "welcome 4000")


def test_drain():
    """Who runs is left alone, who is out stays out, and who comes leaves."""
    daemon = Daemon(Directory(), "--quantum", "0.2")
    first = joins(daemon, "first", SIZE)
    second = joins(daemon, "second")
    second.grow(SIZE)
    until(lambda: second.mapped == SIZE, 5, "the second has its memory")
    until(lambda: first.mapped == SIZE, 5, "the first has its memory")
    equal(ordered("drain", UUID), "")
    equal(gpu()["state"], "drained")
    contains(cudaw("turns").out, "; drained: nobody gets a turn\n")
    until(lambda: not {row(name)["state"] for name in ("first", "second")} & {"leaving", "enters"}, 5,
          "no hand-over is under way")
    runs, = (member for member in (first, second) if row(member.name)["state"] == "runs")
    out = second if runs is first else first
    turns = out.count("room"), runs.count("yield")
    daemon.passes(600)
    equal((out.count("room"), runs.count("yield")), turns)
    third = joins(daemon, "third", 10 * MIB)
    third.wait("yield")
    until(lambda: row("third")["state"] == "waits", 5, "the third waits")
    equal(cudaw("yield", runs.name).code, 0)
    until(lambda: runs.mapped == 0, 5, "it gives all of its memory")
    daemon.passes(600)
    equal([row(name)["state"] for name in ("first", "second", "third")], ["waits"] * 3)
    equal(ordered("undrain", UUID), "")
    until(lambda: third.mapped == 10 * MIB and first.mapped + second.mapped >= SIZE, 5, "they run again")
    equal((events("drained"), events("undrained"), gpu()["state"]), ([UUID], [UUID], "open"))


def test_orders_of_others():
    with node_daemon() as daemon:
        with as_nobody():
            for order in ("set idle=3", f"drain {UUID}", f"undrain {UUID}"):
                equal(daemon.ask(order), ["end denied this is for the daemon's user and root"])
            result = cudaw("turns", "set", "idle=3", user="nobody")
        equal(result.code, 4)
        contains(result.err, f"{daemon.path}: only root and the daemon's user may do that\n")
        equal((Member(daemon).wait("welcome"), events("set")), ("welcome 500", []))
        joins(daemon, "user", 10 * MIB)
        equal(gpu()["state"], "open")


def test_names_of_others():
    """A name that another user's job has, too, means one's own."""
    with node_daemon() as daemon:
        joins(daemon, "train")
        with as_nobody():
            equal(daemon.ask("give train"), ["end denied the job belongs to another user"])
            joins(daemon, "train")
            equal(daemon.ask("give train"), ["end ok"])
        asked = [line.split()[5] for line in daemon.ask("events") if " asked " in line]
        equal(asked, [str(NOBODY)])


if __name__ == "__main__":
    main()
