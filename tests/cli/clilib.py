# SPDX-License-Identifier: Apache-2.0
"""
Shared by the tests of the cudaw command: a runtime directory of their own, the command at
$BUILD/bin/cudaw, and fake jobs that speak common/protocol/protocol.h.
"""
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import harness  # noqa: E402
from harness import (BUILD, CUDAW, PATIENCE, Skip, contains, ends_with_us, equal,  # noqa: E402, F401
                     faces, judge_end, need_other_users, open_terminal, scratch, until)
from proclib import state  # noqa: E402

FACES = faces()
LIMIT_S = 150  # for one run of the command, which takes a second where the machine is idle


class Result:
    def __init__(self, done):
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr


def cudaw(*args, env=None, command=CUDAW, user=None):
    """Run the command; its exit code, stdout and stderr. env: variables to set (None: unset)."""
    full = dict(os.environ)
    for key, value in (env or {}).items():
        if value is None:
            full.pop(key, None)
        else:
            full[key] = value
    if user is not None:
        need_other_users()
    done = subprocess.run([command, *args], env=full, user=user, text=True, timeout=LIMIT_S,
                          stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if args[:1] != ("run",):    # which becomes a program
        judge_end("cudaw", done.returncode)
    return Result(done)


def on_terminal(*args, columns=80, rows=24, **env):
    """Run the command with stdout on a terminal of this size; its exit code, and the lines that it prints."""
    master, slave = open_terminal()
    subprocess.run(["stty", "cols", str(columns), "rows", str(rows)], stdin=slave, check=True)
    process = ends_with_us(subprocess.Popen([CUDAW, *args], env={**os.environ, "TERM": "xterm", **env}, stdout=slave))
    os.close(slave)
    shown, part = b"", True
    while part:
        try:
            part = os.read(master, 4096)
        except OSError:     # the terminal's last user has ended
            part = b""
        shown += part
    os.close(master)
    code = process.wait(timeout=LIMIT_S)
    judge_end("cudaw", code)
    return code, shown.decode().replace("\r\n", "\n").splitlines()


def installed_copy(prefix, faces=True):
    """Copy the command, and the directory of its libraries, to prefix; the command's new path."""
    os.makedirs(f"{prefix}/bin")
    command = shutil.copy(CUDAW, f"{prefix}/bin/cudaw")
    if faces:
        shutil.copytree(FACES, f"{prefix}/lib/{os.path.basename(FACES)}")
    return command


class Directory:
    """A runtime directory; CUDAW_RUNTIME_DIR points to it while the test runs."""

    def __init__(self, mode=0o700):
        self.path = os.environ["CUDAW_RUNTIME_DIR"] = scratch(mode)

    def socket(self, pid):
        return os.path.join(self.path, f"{pid}.sock")

    def sharing_socket(self, pid):
        return os.path.join(self.path, f"{pid}.sharing")


def live_pid(begin=None, user=None, **env):
    """The PID of a process that lives as long as the tests, started with this environment. It calls
    begin() first."""
    process = subprocess.Popen(["sleep", "1000"], env={**os.environ, **env}, preexec_fn=begin,
                               user=user)
    return ends_with_us(process).pid


def dead_pid():
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def stop(pid):
    os.kill(pid, signal.SIGSTOP)
    until(lambda: state(pid) in "TZX", 10, f"process {pid} stops")


def status(pid, **fields):
    """The answer of a job to "status"; fields of the value None are left out."""
    keys = {"protocol": 1, "id": "abc123", "pid": pid, "uid": os.getuid(), "command": "./job",
            "state": "running", "gpu": "0 GPU-1234 Simulated GPU", "carried": 0, "left_to_driver": 0,
            "paused": 0}
    keys.update(fields)
    lines = []
    for key, value in keys.items():
        for one in value if isinstance(value, list) else [value]:
            if one is not None:
                lines.append(f"{key} {one}")
    return lines + ["end ok"]


class FakeJob:
    """
    One process of a job: a process that listens, and a thread of ours that answers each request by
    its first word. answers: {"status": [line...] or bytes or a function(job, connection)}. requests
    holds what was asked, status aside. env: what the process was started with; user: as whom;
    claims: the number that its socket is named after, where that is not its own; backlog: how many
    callers may wait; begin(): what it does before it listens.
    """

    def __init__(self, directory, answers=None, env=None, user=None, claims=None, backlog=64,
                 begin=lambda: None, **fields):
        listener = socket.socket(socket.AF_UNIX)

        def listen():
            begin()
            listener.bind(directory.socket(claims or os.getpid()))
            listener.listen(backlog)

        # The kernel names who has called listen(2) as the one at the other end.
        self.pid = live_pid(listen, user, **(env or {}))
        self.listener = listener
        self.requests = []
        self.answers = {"status": status(self.pid, **fields),
                        "pause": ["end ok"], "resume": ["end ok"], "hold": at_rest, "regain": back}
        self.answers.update(answers or {})
        self.over = threading.Event()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection):
        with connection:
            try:
                request = read_line(connection)
                if not request:
                    return      # it wanted to know who listens
                word = request.split(" ")[0]
                if word != "status":
                    self.requests.append(request)
                self.give(word, connection)
            except OSError:
                pass  # the command hung up

    def give(self, word, connection):
        """Give the answer to a request."""
        answer = self.answers[word]
        if callable(answer):
            answer(self, connection)
        elif isinstance(answer, bytes):
            connection.sendall(answer)
        else:
            say(connection, *answer)

    def silent(self, _connection):
        """An answer that never comes."""
        self.over.wait()


def silent(job, connection):
    job.silent(connection)


def read_line(connection):
    """The next line, and nothing of what follows it; empty at the end."""
    line = b""
    while not line.endswith(b"\n") and (byte := connection.recv(1)):
        line += byte
    return line.decode().rstrip("\n")


def orders(job, connection):
    """The orders to a held job, one after the other."""
    while line := read_line(connection):
        job.requests.append(line)
        yield line


def obey(job, connection, verb="pause"):
    """Take the orders of a job that is at rest, or has its memory back, to the end."""
    for order in orders(job, connection):
        if order == "commit":
            job.give(verb, connection)
            return
        if order == "abort":
            say(connection, "end busy cancelled")
            return
        if order.startswith("step "):
            say(connection, f"held drained {order.split()[1]}")


def at_rest(job, connection):
    """The answer to "hold" of a job whose GPU is idle."""
    say(connection, "held drained 0")
    obey(job, connection)


def back(job, connection):
    """The answer to "regain" of a job that gets its memory back."""
    say(connection, "held drained 0")
    obey(job, connection, "resume")


def say(connection, *lines):
    connection.sendall("".join(line + "\n" for line in lines).encode())


def caller(connection):
    """The PID of the process that has called a job."""
    return struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]


def alone():
    """Run this script again as the first process of a PID namespace, with a /tmp of its own: a
    command without CUDAW_RUNTIME_DIR finds the jobs of all processes and in all directories that it
    sees, and those are of this test alone. Returns in that process, or where none can be made. Root
    is one of a user namespace if need be."""
    if os.environ.get("CUDAW_TEST_ALONE") or f"{BUILD}/".startswith("/tmp/"):
        return
    own_tmp = ["sh", "-c", 'mount -t tmpfs none /tmp && exec "$@"', "sh"]
    for users in ([], ["--user", "--map-root-user"]):
        inside = ["unshare", *users, "--pid", "--mount", "--fork", "--kill-child", "--mount-proc",
                  *own_tmp]
        if not shutil.which(inside[0]) or subprocess.run([*inside, "true"], check=False,
                                                         stderr=subprocess.DEVNULL).returncode:
            continue
        os.environ["CUDAW_TEST_ALONE"] = "users" if users else "root"
        os.execvp(inside[0], [*inside, sys.executable, *sys.argv])


def needs_to_be_alone(root=False):
    """root: with all user ids."""
    how = os.environ.get("CUDAW_TEST_ALONE")
    if not how or (root and how != "root"):
        raise Skip("needs root" if how else "no PID namespace can be made, or the build is in /tmp")


def main():
    """Run every function test_* of the calling script, in order, without settings of cudaw's and the terminal's."""
    os.environ.pop("COLUMNS", None)
    for key in [key for key in os.environ if key.startswith("CUDAW_") and key != "CUDAW_TEST_ALONE"]:
        del os.environ[key]
    harness.main()
