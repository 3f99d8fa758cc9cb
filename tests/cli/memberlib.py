# SPDX-License-Identifier: Apache-2.0
"""cudawd, and stand-ins for its members, which speak the lines of common/protocol/protocol.h."""
import contextlib
import itertools
import os
import pwd
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback

from clilib import Directory
from harness import BUILD, Skip, check, ends_with_us, equal, scratch, until

CUDAWD = os.path.join(BUILD, "bin", "cudawd")
CLOCKED = os.path.join(BUILD, "tests", "cudawd_clock")     # which goes by a clock of the test
UUID = "GPU-63756461-772d-7369-6d75-6c6174656400"
MIB = 1 << 20
TOTAL = 1000 * MIB
MARGIN = 100 * MIB
CAPACITY = TOTAL - MARGIN
WAIT_S = 30
NOBODY = pwd.getpwnam("nobody").pw_uid


def nvml_environment(path):
    """For a daemon whose NVML takes the GPU's memory from the file @path."""
    libraries = scratch()
    shutil.copy(f"{BUILD}/tests/preload/nvml.so", f"{libraries}/libnvidia-ml.so.1")
    return {"LD_LIBRARY_PATH": libraries, "TEST_NVML_FILE": path}


def say_memory(path, used, holders=None):
    """What the daemon's NVML says is used, and by which processes: bytes by PID."""
    with open(path + ".new", "w", encoding="ascii") as file:
        file.write(f"{TOTAL} {TOTAL - used}\n")
        for pid, size in (holders or {}).items():
            file.write(f"{pid} {size}\n")
    os.rename(path + ".new", path)


def connect(path):
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)    # waits where too many others do
    connection.settimeout(WAIT_S)
    return connection


class Daemon:
    """A cudawd of the user in the runtime directory, with options."""

    def __init__(self, directory, *options, **env):
        self.path = os.path.join(directory.path, "cudawd.sock")
        self.memory = os.path.join(directory.path, "memory")
        say_memory(self.memory, 0)
        self.clock = tempfile.TemporaryFile()
        self.passed_ms = 0
        self.members = []
        self.set_clock()
        self.process = subprocess.Popen(
            [CLOCKED, "--clock", str(self.clock.fileno()), "--margin", str(MARGIN), "--linger", "60", *options],
            stderr=subprocess.PIPE, text=True, pass_fds=[self.clock.fileno()],
            env={**os.environ, **nvml_environment(self.memory), **env})
        ends_with_us(self.process)
        until(lambda: self.answers() or self.process.poll() is not None, 5, "cudawd answers")

    def answers(self):
        try:
            connect(self.path).close()
            return True
        except OSError:
            return False

    def ask(self, request):
        """The lines of its answer to a command."""
        with connect(self.path) as connection:
            connection.sendall(f"{request}\n".encode())
            with connection.makefile("r", encoding="utf-8") as lines:
                return [line.rstrip("\n") for line in lines]

    def set_clock(self):
        os.pwrite(self.clock.fileno(), self.passed_ms.to_bytes(8, sys.byteorder), 0)

    def passes(self, seconds):
        """
        So much time passes for it, and it has decided what that means: before it answers once more. Not before its
        members have done what they were told, as they go by real time.
        """
        for member in self.members:
            member.keeps_up()
        self.ask("list")
        self.passed_ms += int(seconds * 1000)
        self.set_clock()
        for _ in range(2):
            self.ask("list")

    def until(self, condition, what):
        """Time passes for it meanwhile, enough for a turn to end, and not much more: NVML takes real time."""
        for _ in range(15):
            if condition():
                break
            self.passes(0.2)
        return until(condition, 5, what)

    def says(self):
        """The first line on its stderr: more of them may be in the buffer of Python, which select() does not see."""
        check(select.select([self.process.stderr], [], [], WAIT_S)[0], f"cudawd says nothing for {WAIT_S} s")
        return self.process.stderr.readline()

    def wait_end(self):
        self.process.wait(WAIT_S)
        return self.process.returncode, self.process.stderr.read()


@contextlib.contextmanager
def as_nobody():
    """Connections are those of another user. Needs root."""
    if os.geteuid():
        raise Skip("needs root")
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@contextlib.contextmanager
def node_daemon(*options):
    """One for all users, which the command asks."""
    if os.geteuid():
        raise Skip("needs root")
    directory = Directory(0o755)
    path = f"{directory.path}/cudawd.sock"
    os.environ["CUDAW_TURNS"] = path
    try:
        yield Daemon(directory, "--socket", path, *options)
    finally:
        del os.environ["CUDAW_TURNS"]


@contextlib.contextmanager
def daemon_of_systemd(path, *command, mode=0o600):
    """The PID of a cudawd that gets its socket, at @path, as systemd passes it. @command: what starts it."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    os.chmod(path, mode)
    listener.listen(8)
    pid = os.fork()
    if pid == 0:
        os.dup2(listener.fileno(), 3)
        os.set_inheritable(3, True)     # also if it was 3
        os.environ.update(LISTEN_FDS="1", LISTEN_PID=str(os.getpid()))
        command = [*command, CUDAWD, "--linger", "0.1"]
        os.execvp(command[0], command)
    listener.close()
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGTERM)
        equal(os.waitpid(pid, 0)[1], 0)


@contextlib.contextmanager
def connected_by_another(path, user=NOBODY):
    """A connection that another process of that user has made, and its PID."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        try:
            os.setresuid(user, user, user)
            with connect(path) as connection:
                socket.send_fds(theirs, [b"x"], [connection.fileno()])
                signal.pause()
        except BaseException:   # it must not go on as the test
            traceback.print_exc()
        finally:
            os._exit(1)
    theirs.close()
    try:
        fd, = socket.recv_fds(ours, 1, 1)[1]
        with socket.socket(fileno=fd) as connection:
            connection.settimeout(WAIT_S)   # the other process has made it non-blocking
            yield connection, pid
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


numbers = itertools.count(1)


def a_job():
    """A job of its own: those of one ID take turns together."""
    return f"id {next(numbers):06x}"


class Member:
    """
    A member that runs with @size bytes on one GPU. It does what it is told by itself, and notes each
    line that it hears; the members that have a @book write there how much they have had together at
    most. With obeys=False it only listens. @lines: its introduction. @connection: that of another process.
    """

    def __init__(self, daemon, size=0, name="job", obeys=True, book=None, state="running",
                 mapped=None, lines=None, connection=None):
        self.daemon, self.heard = daemon, []
        self.connection = connection or connect(daemon.path)
        self.book = {} if book is None else book
        self.name, self.total, self.obeys = name, size, obeys
        self.grows, self.mapped = 0, 0
        mapped = size if mapped is None else mapped
        self.note_mapped(mapped)
        self.closed = False
        self.say(*(lines or ("turns 1", a_job(), f"name {name}", "pid 7",
                             f"command ./{name} --size", f"need {UUID} {mapped} {size}",
                             f"state {state}", "joined")))
        threading.Thread(target=self.listen, daemon=True).start()
        if obeys and daemon:
            daemon.members.append(self)

    def keeps_up(self):
        """It has done what it was told up to now: the answer to a ping comes after that."""
        if self.closed or not self.count("welcome"):
            return
        pongs = self.count("pong")
        self.say("ping")
        until(lambda: self.closed or self.count("pong") > pongs, 5, f"{self.name} does what it was told")
        if not self.closed:
            self.heard.remove("pong")   # the test has not asked for it

    def note_mapped(self, mapped):
        self.mapped = mapped
        self.book[self] = mapped
        self.book["most"] = max(self.book.get("most", 0),
                                sum(size for key, size in self.book.items() if key != "most"))

    def say(self, *lines):
        self.connection.sendall("".join(f"{line}\n" for line in lines).encode())

    def listen(self):
        try:
            with self.connection.makefile("r", encoding="utf-8") as lines:
                for line in lines:
                    self.heard.append(line.rstrip("\n"))
                    if self.obeys:
                        self.obey(*line.split())
        except (OSError, ValueError):
            pass
        self.closed = True

    def obey(self, word, *rest):
        if word == "yield":
            self.give(min(int(rest[0]), self.mapped))
        elif word == "room" and self.mapped < self.total:
            self.take(min(int(rest[0]), self.total))

        elif word == "try":
            self.total += self.grows
            self.note_mapped(self.mapped + self.grows)
            self.say(self.need())

    def need(self):
        return f"need {UUID} {self.mapped} {self.total}"

    def grow(self, size):
        """An allocation waits."""
        self.grows = size
        self.say(f"grow 1 {UUID} {size}")

    def give(self, size):
        self.say("state waiting")
        left = self.mapped - size
        for mapped in range(self.mapped, left, -64 * MIB):
            self.note_mapped(mapped)
            self.say(f"freed {left + size - mapped}")
        self.note_mapped(left)
        self.say(f"freed {size}", f"mapped {self.mapped}", "end ok", self.need(), "want")

    def take(self, mapped):
        self.note_mapped(mapped)
        self.say(f"mapped {mapped}")
        if mapped == self.total:
            self.say("ready", "filled", "end ok", self.need(), "state running")

    def line(self, word, count=1):
        """The line that is the @count-th with this word; None: it has not heard it."""
        lines = [line for line in self.heard if line.split()[0] == word]
        return lines[count - 1] if len(lines) >= count else None

    def wait(self, word, count=1):
        return until(lambda: self.line(word, count), 5, f"{self.name}: '{word}' {count} times, heard {self.heard}")

    def wait_turn(self, word, count=1):
        """A turn must end before."""
        return self.daemon.until(lambda: self.line(word, count), f"{self.name}: '{word}' {count} times")

    def count(self, word):
        return sum(line.split()[0] == word for line in self.heard)

    def hang_up(self):
        try:
            self.connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.connection.close()
        self.closed = True
        self.book.pop(self, None)
