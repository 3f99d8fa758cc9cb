# SPDX-License-Identifier: Apache-2.0
"""How the plans of a storm (plans.py) are carried out: its jobs, commands and clients.

Nothing here is judged while the storm lasts, except the end of a job or of a command: which exit
statuses are right depends on what was done to it, so that is noted before it is done.
"""
import collections
import contextlib
import itertools
import os
import signal
import socket
import subprocess
import tempfile
import threading
import time

from simlib import SANITIZED, SCRATCH, TSAN, is_stopped
from gpulib import CUDAW, RUNTIME_DIR, Job, base_environment, check
from proclib import descendants, send
import plans

STAND_IN = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "jobs",
                        "stand_in_criu")
ENDLESS = ["--steps", "100000000", "--step-ms", "3"]
TERM_EXIT = 7

# right: what the last line says; ends: the exit status that each signal brings, as far as it is one
# that the program handles; how a calm storm ends it.
Program = collections.namedtuple("Program", "file args right ends last")
TERM_AND_INT = {"INT": 0, "TERM": TERM_EXIT}
TERM_WORDS = ["--term-exit", str(TERM_EXIT)]
PROGRAMS = {
    "counter": Program("counter", ["--mib", "24", "--allocs", "10", "--verify", "1", *TERM_WORDS,
                                   *ENDLESS], "every word right", TERM_AND_INT, "INT"),
    # Others use the same GPU, so what is free there says nothing.
    "soak": Program("soak", ["--threads", "8", "--contexts", "2", "--slack-mib", "1000000", *ENDLESS],
                    "every byte right", {"INT": 0}, "INT"),
    "ranks": Program("ranks", ["--ranks", "2", *ENDLESS], "every word right", {"INT": 0}, "INT"),
    "capture": Program("capture", [*TERM_WORDS, *ENDLESS], "every word right", TERM_AND_INT, "INT"),
    "graph_nodes": Program("graph_nodes", [*TERM_WORDS, *ENDLESS], "c ", TERM_AND_INT, "INT"),
    "managed": Program("managed_run", ["--mib", "4", *TERM_WORDS, *ENDLESS], "every word right",
                       TERM_AND_INT, "INT"),
    "churn": Program("churn", ENDLESS, "as it was", {"INT": 0}, "INT"),
    "python": Program("ctypes_job.py", ["--spawn", *ENDLESS], "", {"TERM": TERM_EXIT}, "TERM"),
    "loader": Program("loader_job.py", ["--steps", "100", "--step-ms", "10"], "every step right",
                      {}, None),
}
SLOTS = range(plans.SLOTS)
if SANITIZED:   # Python cannot be built so
    SLOTS = range(3)    # all take several times as long
    PROGRAMS["python"], PROGRAMS["loader"] = PROGRAMS["counter"], PROGRAMS["capture"]


class StormJob:
    """A job of a slot, with the exit statuses that are right for it now."""
    numbers = itertools.count(1)

    def __init__(self, slot, name, settings):
        self.number = next(self.numbers)
        self.program = PROGRAMS[name]
        self.log = os.path.join(SCRATCH, f"log-{self.number}")
        self.allowed = set() if self.program.last else {0}
        self.told = self.killed = False
        settings = dict(settings)
        if TSAN:
            settings["CUDAW_RELEASE"] = "memory"
        self.settings = settings
        self.job = Job(self.program.file, *self.program.args, name=f"slot{slot}",
                       env={**settings, "CUDA_VISIBLE_DEVICES": str(slot % 2),
                            "CUDAW_LOG": "info", "CUDAW_LOG_FILE": self.log},
                       process_group=None if self.number % 2 else 0)   # the kernel ignores SIGTSTP in ours

    def __str__(self):
        return f"job {self.number} ({self.job.program}, PID {self.job.pid}, {self.settings})"

    def ended(self):
        return self.job.ended()

    def processes(self):
        """The PIDs of those that use CUDA: a signal comes to others as if there were no cudaw."""
        pids = [self.job.pid, *descendants(self.job.pid)]
        return [pid for pid in pids if os.path.exists(os.path.join(RUNTIME_DIR, f"{pid}.sock"))]

    def end(self, name):
        """Have it end by a signal, where that is one that the program is built for."""
        if name == "KILL":
            self.kill()
        elif name in self.program.ends and self.job.lines and not self.ended():
            self.told = True
            self.allowed.add(self.program.ends[name])
            self.job.send(getattr(signal, f"SIG{name}"))

    def kill(self):
        self.killed = True
        self.allowed.add(-signal.SIGKILL)
        for pid in [self.job.pid, *descendants(self.job.pid)]:
            send(pid, "KILL")

    def goes_on(self):
        for pid in [self.job.pid, *descendants(self.job.pid)]:
            with contextlib.suppress(OSError):  # it has ended
                if is_stopped(pid):
                    send(pid, "CONT")

    def has_leak_check(self):
        """LSan stops the process for it by PTRACE_ATTACH, and waits for ever where a SIGCONT takes
        that SIGSTOP back."""
        return SANITIZED and self.told

    def judge(self):
        """It has ended, and must have ended right."""
        status = self.job.process.wait()
        self.job.reader.join(10)
        said, last = self.job.stderr(), (self.job.lines or [""])[-1]
        with contextlib.suppress(ValueError):
            Job.alive.remove(self.job)
        check(status in self.allowed,
              f"{self} ended with status {status}, allowed are {sorted(self.allowed)}; its last "
              f"line is {last!r}, on stderr are: {said[-2000:]}")
        check(status != 0 or self.program.right in last, f"{self} ended with the line {last!r}")
        if status == 0 and self.job.program == "graph_nodes":
            self.compare()

    def compare(self):
        """What its memory must be after so many steps, a native run tells."""
        steps = self.job.steps()
        native = Job("graph_nodes", "--steps", steps, mode="native", env={"CUDAW_SIM_SHARED": ""})
        wanted = native.result(600).splitlines()[-3:]
        check(self.job.lines[-3:] == wanted,
              f"{self} ended with {self.job.lines[-3:]} after {steps} steps, natively with {wanted}")


class Command:
    """A run of cudaw, which may outlast the plan that began it."""

    def __init__(self, words):
        self.words, self.sent, self.stopped = words, set(), False
        self.output = tempfile.TemporaryFile()
        self.process = subprocess.Popen([CUDAW, *words], stdin=subprocess.DEVNULL,
                                        stdout=self.output, stderr=subprocess.STDOUT,
                                        env={**base_environment(), "CUDAW_CRIU": STAND_IN})

    def __str__(self):
        return f"cudaw {' '.join(self.words)} (PID {self.process.pid}, sent {sorted(self.sent)})"

    def ended(self, limit=0.0):
        try:
            self.process.wait(limit)
            return True
        except subprocess.TimeoutExpired:
            return False

    def send(self, name):
        self.sent.add(name)
        self.stopped = name == "STOP"
        send(self.process.pid, name)

    def judge(self):
        self.output.seek(0)
        said, status = self.output.read().decode(errors="replace"), self.process.returncode
        self.output.close()
        allowed = set(range(7)) | {s for name in self.sent for s in
                                   (-getattr(signal, f"SIG{name}"), 128 + getattr(signal, f"SIG{name}"))}
        check(status in allowed and "Sanitizer" not in said and "runtime error" not in said,
              f"{self} ended with status {status}: {said[-2000:]}")


class Deeds:
    """The jobs, commands and directories of a storm, and what the actors do to them."""

    def __init__(self, without):
        self.jobs = [None] * plans.SLOTS
        self.commands = []
        self.requested = []     # (PID, directory) of snapshots that nobody has said to be done
        self.without = without
        self.start_lock = threading.Lock()     # no job starts while all memory is taken
        self.directories = [os.path.join(SCRATCH, f"snapshot-{n}") for n in range(plans.DIRECTORIES)]

    def alive(self):
        return [job for job in self.jobs if job and not job.ended()]

    def do(self, plan):
        getattr(self, plan.what.replace(" ", "_"))(plan, *plan.args)

    def process(self, plan):
        """The job and the process that a plan means; None twice where there is none."""
        job = self.jobs[plan.slot]
        pids = job.processes() if job and not job.ended() else []
        return (job, pids[plan.process % len(pids)]) if pids else (None, None)

    # ---- jobs

    def job(self, plan, name, settings, end, when):
        job = self.jobs[plan.slot]
        if plan.slot not in SLOTS:
            return
        if job is None or job.ended():
            if job:
                job.judge()
            with self.start_lock:
                name = "counter" if name in self.without else name
                self.jobs[plan.slot] = StormJob(plan.slot, name, settings)
        elif end:
            time.sleep(when)
            job.end(end)

    def hog(self, _plan, seconds):
        """Take all memory of a GPU whose jobs have what they need, or are paused."""
        with self.start_lock:
            jobs = [job for job in self.jobs[1::2] if job]
            if all(job.job.steps() for job in jobs):
                hog = Job("hog", mode="native", env={"CUDA_VISIBLE_DEVICES": "1"})
                time.sleep(seconds)
                hog.discard()

    # ---- commands

    def command(self, plan, words, whom, everybody, by, directory, fate, when):
        job, pid = self.process(plan)
        words = list(words)
        if words[0] in self.without:
            return
        if whom == "jobs" and everybody:
            words.append("--all")
        elif whom in ("jobs", "directory"):
            if not job:
                return
            stops = "--stop" in words
            if stops:
                job.allowed.add(-signal.SIGKILL)
            words.append(f"slot{plan.slot}" if by == "name" and not stops else str(pid))
        if "directory" in whom:
            words.append(self.directories[directory])
        if TSAN and "all" in words:
            words[words.index("all")] = "memory"
        command = Command(words)
        self.commands.append(command)
        if fate == "wait":
            command.ended(1.5)
            return
        time.sleep(when)
        command.send(fate.split()[0])
        if fate == "STOP and CONT":
            time.sleep(when)
            command.send("CONT")

    # ---- signals

    def signals(self, plan, names, pause):
        job, pid = self.process(plan)
        for name in names:
            if not job or job.ended() or job.has_leak_check():
                return
            send(pid, name)
            time.sleep(pause)

    # ---- clients

    def idle(self, plan, *args):
        """More clients than a job listens to."""
        _, pid = self.process(plan)
        clients = [connected(pid) for _ in range(40)] if pid else []
        time.sleep(args[-1])
        for client in filter(None, clients):
            client.close()

    def request(self, plan, text, directory, manner, orders, seconds):
        _, pid = self.process(plan)
        if text.split()[:1] and text.split()[0].decode(errors="replace") in self.without:
            return
        client = pid and connected(pid)
        if not client:
            return
        text = text.replace(b"DIRECTORY", self.directories[directory].encode())
        if text.startswith(b"snapshot "):
            self.requested.append((pid, self.directories[directory]))
        if TSAN:
            text = text.replace(b" all", b" memory")
        with client, contextlib.suppress(OSError):
            if manner == "pieces":
                for i in range(0, min(len(text), 100), 10):
                    client.sendall(text[i:i + 10])
                    time.sleep(0.002)
                text = text[100:]
            client.sendall(text)
            for order in orders if manner == "orders" else []:
                time.sleep(seconds / 10)
                client.sendall(order)
            if manner != "hang up":
                client.settimeout(seconds + 0.01)
                end = time.monotonic() + seconds
                # A job that is held tells of its progress for as long as somebody listens.
                while client.recv(4096) and time.monotonic() < end:
                    pass


def connected(pid, limit=1.0):
    """A connection to the process, or None where it does not take one in time."""
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(limit)
    try:
        client.connect(os.path.join(RUNTIME_DIR, f"{pid}.sock"))
    except OSError:
        client.close()
        return None
    return client


def asked(pid, request, limit):
    """The answer's lines; None where none comes whole in time, or nobody listens."""
    end = time.monotonic() + limit
    client = connected(pid, limit)
    text = b""
    if not client:
        return None
    with client:
        try:
            client.sendall(request)
            while time.monotonic() < end and (chunk := client.recv(4096)):
                text += chunk
        except OSError:
            return None
    lines = text.decode(errors="replace").splitlines()
    return lines if lines and lines[-1].startswith("end ") else None
