#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cudaw metrics: what it prints, writes to a file, and serves."""
import http.client
import os
import re
import shutil
import signal
import socket
import stat
import subprocess

from clilib import CUDAW, Directory, FakeJob, contains, cudaw, ends_with_us, equal, main, scratch
from harness import PATIENCE, Skip, check, until
from json_docs import page
from proclib import descendants, is_zombie
from memberlib import NOBODY, UUID, Daemon, Member

FIGURES = {"pause_us": "1250000", "pause_bytes": "8000", "resume_us": "500000", "resume_bytes": "9000"}
QUICK = ("--quantum", "0.2")
LINE = re.compile(r'(\w+)(?:\{((?:[a-z_]+="(?:[^"\\\n]|\\[\\"n])*",?)*)\})? ([0-9.e+-]+)')


def samples(text):
    """{name: [(labels, value)]}; every line has its form, and all lines of a metric are together, behind its type."""
    found, current = {}, None
    check(text.endswith("\n"), "the last line ends")
    for line in text.splitlines():
        if line.startswith("# HELP "):
            name = line.split()[2]
            check(name not in found, f"{name} is there once")
            found[name], current = [], name
        elif not line.startswith(f"# TYPE {current} "):
            match = LINE.fullmatch(line)
            check(match and match[1] == current, f"{line!r} is a sample of {current}")
            labels = dict(re.findall(r'([a-z_]+)="((?:[^"\\]|\\.)*)"', match[2] or ""))
            check(all(labels != other for other, _ in found[name]), f"{line!r} is there once")
            found[name].append((labels, float(match[3])))
    return found


def printed():
    result = cudaw("metrics")
    equal((result.code, result.err), (0, ""))
    return samples(result.out)


def value(found, name, /, **labels):
    values = [number for has, number in found[name] if labels.items() <= has.items()]
    equal(len(values), 1, f"the samples of {name} with {labels}: {found[name]}")
    return values[0]


def test_jobs():
    directory = Directory()
    FakeJob(directory, name="train", carried=5000, left_to_driver=60, pool=7, **FIGURES)
    FakeJob(directory, id="fff000", state="paused", paused=11, spilled=12, released=1, waits="memory 5 2500000")
    found = printed()
    train = {"name": "train", "id": "abc123"}
    for name, wanted in (("carried_bytes", 5000), ("left_to_driver_bytes", 60), ("pool_bytes", 7), ("freed", 0),
                         ("last_pause_seconds", 1.25), ("last_pause_bytes", 8000), ("last_resume_seconds", 0.5),
                         ("last_resume_bytes", 9000)):
        equal(value(found, f"cudaw_process_{name}", **train), wanted, name)
    for name, wanted in (("host_bytes", 11), ("disk_bytes", 12), ("freed", 1)):
        equal(value(found, f"cudaw_process_{name}", id="fff000"), wanted, name)
    equal(value(found, "cudaw_process_wait_seconds", id="fff000"), 2.5, "how long it waits")
    equal(value(found, "cudaw_process_state", id="fff000", state="paused"), 1, "its state")
    equal([value(found, "cudaw_processes", state=state) for state in ("running", "paused", "failed")], [1, 1, 0])
    equal(value(found, "cudaw_daemon_up"), 0, "there is no daemon")


def test_turns():
    daemon = Daemon(Directory(), *QUICK)
    member = Member(daemon)
    member.wait("welcome")
    found = printed()
    equal(value(found, "cudaw_daemon_up"), 1, "it answers")
    equal(value(found, "cudaw_gpu_open", gpu=UUID), 1, "the GPU is open")
    check(value(found, "cudaw_gpu_capacity_bytes", gpu=UUID) > 0, "it has memory")
    equal(value(found, "cudaw_member_turns_total", name="job"), 0, "turns")
    check(value(found, "cudaw_member_needed_bytes", name="job", gpu=UUID) >= 0, "what it needs")


def test_the_page_has_all_metrics():
    Directory()
    rows = [line for line in page("docs/metrics.md").splitlines() if line.startswith("| `cudaw_")]
    documented = [name for row in rows for name in re.findall(r"`(cudaw_\w+)`", row.split("|")[1])]
    equal(sorted(documented), sorted(printed()), "the metrics on the page")
    for name in documented:
        check(not name.endswith("_total") or f"# TYPE {name} counter" in cudaw("metrics").out, f"{name} is a counter")


def test_names_cannot_break_the_format():
    directory = Directory()
    FakeJob(directory, name='a"b\\c{}\x1b\xe9 # HELP', state="running")
    found = printed()
    (labels, _), = found["cudaw_process_carried_bytes"]
    equal(labels["name"], 'a\\"b\\\\c{}?é # HELP', "the name")


def test_one_that_is_silent():
    directory = Directory()
    FakeJob(directory, answers={"status": []})
    found = printed()
    equal((value(found, "cudaw_processes", state="unknown"), found["cudaw_process_state"]), (1, []), "it is counted")


def test_promtool_finds_nothing():
    if not shutil.which("promtool"):
        raise Skip("no promtool (Debian: prometheus)")
    daemon = Daemon(Directory(), *QUICK)
    Member(daemon).wait("welcome")
    done = subprocess.run(["promtool", "check", "metrics"], input=cudaw("metrics").out, text=True, capture_output=True,
                          check=False)
    equal((done.returncode, done.stdout, done.stderr), (0, "", ""), "promtool check metrics")


def test_a_file():
    directory, home = Directory(), scratch()
    path = os.path.join(home, "cudaw.prom")
    for state in ("running", "paused"):
        job = FakeJob(directory, state=state)
        equal(cudaw("metrics", "--output", path).code, 0, "the exit code")
        with open(path, encoding="utf-8") as file:
            equal(value(samples(file.read()), "cudaw_processes", state=state), 1, "the file")
        equal((stat.S_IMODE(os.stat(path).st_mode), os.listdir(home)), (0o644, ["cudaw.prom"]), "it is alone")
        os.kill(job.pid, signal.SIGKILL)
        job.listener.close()
    result = cudaw("metrics", "--output", path, env={"CUDAW_RUNTIME_DIR": "relative"})
    equal(result.code, 1, "what fails")
    check(os.path.getsize(path) > 0, "the file stays")
    os.mkdir(path + ".d")
    result = cudaw("metrics", "-o", path + ".d")
    equal((result.code, sorted(os.listdir(home))), (1, ["cudaw.prom", "cudaw.prom.d"]), "nothing is left")
    contains(result.err, f"{path}.d: expected a regular file")
    os.mkfifo(path + ".fifo")
    equal(cudaw("metrics", "-o", path + ".fifo").code, 1, "a special file, as /dev/null")
    check(stat.S_ISFIFO(os.stat(path + ".fifo").st_mode), "it is not replaced")
    contains(cudaw("metrics", "-o", f"{home}/none/x").err, "No such file or directory")


class Server:
    def __init__(self, address="127.0.0.1"):
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as free:
            try:
                free.bind((address.strip("[]"), 0))
            except OSError as error:
                raise Skip(f"{address}: {error}") from error
            self.port = free.getsockname()[1]
        self.address = address.strip("[]")
        word = str(self.port) if address == "127.0.0.1" else f"{address}:{self.port}"
        self.process = ends_with_us(subprocess.Popen([CUDAW, "metrics", "--listen", word], stderr=subprocess.PIPE,
                                                     text=True))
        until(lambda: self.answers() or self.process.poll() is not None, 20, "it answers")

    def answers(self):
        try:
            self.connect().close()
            return True
        except OSError:
            return False

    def connect(self):
        return socket.create_connection((self.address, self.port), timeout=60)

    def ask(self, path="/metrics", method="GET", body=None):
        connection = http.client.HTTPConnection(self.address, self.port, timeout=60)
        try:
            connection.request(method, path, body)
            response = connection.getresponse()
            return response.status, response.headers["Content-Type"], response.read().decode()
        finally:
            connection.close()


def test_it_serves():
    directory = Directory()
    server = Server()
    FakeJob(directory, name="train", carried=5000)
    status, kind, text = server.ask()
    equal((status, kind), (200, "text/plain; version=0.0.4; charset=utf-8"), "the answer")
    equal(value(samples(text), "cudaw_process_carried_bytes", name="train"), 5000, "the text")
    equal(server.ask(method="HEAD")[::2], (200, ""), "without a body")
    equal(server.ask("/")[0], 404, "another path")
    equal(server.ask("/metrics/../etc/passwd")[0], 404, "another path")
    equal(server.ask(method="POST", body="x" * 100000)[0], 405, "another method")


def test_addresses():
    Directory()
    server = Server()
    with open(f"/proc/{server.process.pid}/net/tcp", encoding="ascii") as file:
        check(f"0100007F:{server.port:04X} 00000000:0000 0A" in file.read(), "it listens on 127.0.0.1 alone")
    equal(Server("[::1]").ask()[0], 200, "by IPv6")
    result = cudaw("metrics", "--listen", str(server.port))
    equal(result.code, 1, "a port that is taken")
    contains(result.err, f"--listen {server.port}: Address already in use")
    for word in ("", "x", "70000", "1.2.3.4:", "::1:80", "[::1", "localhost:80", ":", "9" * 80):
        result = cudaw("metrics", "--listen", word)
        check(result.code in (1, 2), f"{word}: {result.code}")
        contains(result.err, "expected")


def test_it_has_no_rights():
    Directory()
    server = Server()
    server.ask()    # the process below serves, for which it has given up its rights
    below, = descendants(server.process.pid)
    with open(f"/proc/{below}/status", encoding="ascii") as file:
        fields = dict(line.split(":", 1) for line in file)
    if os.geteuid() == 0:
        equal((fields["Uid"].split(), fields["Gid"].split(), fields["Groups"].split(), fields["CapEff"].strip()),
              ([str(NOBODY)] * 4, [str(NOBODY)] * 4, [], "0" * 16), "its rights")
    equal(fields["NoNewPrivs"].strip(), "1", "nor can it get any")
    os.kill(below, signal.SIGKILL)
    equal(server.process.wait(30 * PATIENCE), 1, "the exit code")
    contains(server.process.stderr.read(), "the process that serves was ended by signal 9")
    server = Server()
    server.ask()
    below, = descendants(server.process.pid)
    server.process.kill()
    until(lambda: not os.path.exists(f"/proc/{below}") or is_zombie(below), 20, "it ends with the command")


def answers(server):
    try:
        return server.ask()[0] == 200
    except OSError:
        return False


def test_bad_clients():
    """Of one address eight connections are open; rubbish, half requests and long ones disturb nobody else."""
    Directory()
    server = Server()
    for text in (b"\0\xff\r\n\r\n", b"GET /metrics HTTP/9.9\r\n\r\n", b"GET " + b"x" * 100000 + b" HTTP/1.1\r\n\r\n",
                 b"GET /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n"):
        with server.connect() as connection:
            try:
                connection.sendall(text)
            except OSError:
                pass
    slow = [server.connect() for _ in range(4)]
    for connection in slow:
        connection.sendall(b"GET /met")
    until(lambda: answers(server), 20, "another one has its answer")     # once those before are closed
    with server.connect() as gone:
        gone.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    until(lambda: answers(server), 20, "after one that did not wait")


def test_without_the_library():
    Directory()
    home = scratch()
    with open(os.path.join(home, "libmicrohttpd.so.12"), "wb"):
        pass
    result = cudaw("metrics", "--listen", "1", env={"LD_LIBRARY_PATH": home})
    equal(result.code, 6, "the exit code")
    contains(result.err, "--listen needs libmicrohttpd: ")
    equal(cudaw("metrics", env={"LD_LIBRARY_PATH": home}).code, 0, "without --listen")


def test_arguments():
    for args, why in ((["x"], "metrics takes no argument: 'x'"), (["-o", "a", "--listen", "1"], "exclude each other")):
        result = cudaw("metrics", *args)
        equal(result.code, 2, "the exit code")
        contains(result.err, why)


if __name__ == "__main__":
    main()
