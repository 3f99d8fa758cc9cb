# SPDX-License-Identifier: Apache-2.0
"""Jobs of several processes that pause and resume together, with files to hold them up."""
import fcntl
import glob
import os
import struct
import subprocess
import sys
import time

from simlib import SCRATCH, after_case, by_age, errors_of_cudaw
from gpulib import BUILD, CUDAW, RUNTIME_DIR, Job, base_environment, cudaw_ok, equal, hog, jobs, until

CONTEXT, MEMORY, GPU = 64, 64, 4096     # MiB: a context, what a rank has beside it, the GPU
COUNTER = os.path.join(BUILD, "tests", "programs", "counter")


commands = []


def end_commands(_good):
    """One that a case has stopped would be left if the case failed."""
    for command in commands:
        command.kill()
        command.communicate()
    commands.clear()


after_case.append(end_commands)


class Held:
    """A job of several processes, each of which has files to hold its calls and its copies."""

    def __init__(self, name, ranks):
        self.name = name
        self.files = [{way: os.path.join(SCRATCH, f"{name}-{way}-{rank}") for way in ("CALL", "IN", "OUT")}
                      for rank in range(ranks)]
        self.let_all_go()
        self.job = self.start()
        self.job.until(lambda: len(self.pids()) == ranks, 30, "all ranks use CUDA")
        self.job.wait_steps(4)
        self.all = self.pids()      # one that is held in cuMemCreate() does not say its name

    def pids(self):
        """The ranks in their order."""
        return by_age((pid for pid, row in jobs().items() if row["name"] == self.name), self.job.pid)

    def states(self):
        return [row["state"] for row in jobs().values() if row["name"] == self.name]

    def wait_states(self, state, count=None, timeout=30):
        until(lambda: self.states() == [state] * (count or len(self.all)), timeout, f"{self.name} is {state}")

    def hold(self, rank, way):
        with open(self.files[rank][way], "w", encoding="ascii"):
            pass

    def holder(self, rank, way):
        """The process that waits there, or 0."""
        return next((int(file.rpartition(".")[2]) for file in glob.glob(self.files[rank][way] + ".[0-9]*")), 0)

    def let_go(self, rank, way):
        os.unlink(self.files[rank][way])

    def let_all_go(self):
        for files in self.files:
            for file in files.values():
                for path in glob.glob(file + "*"):
                    os.unlink(path)

    def resume(self, *options):
        commands.append(subprocess.Popen([CUDAW, "resume", *options, self.name], env=base_environment(), text=True,
                                         stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        return commands[-1]

    def goes_on(self):
        self.wait_states("running")
        self.job.wait_steps(self.job.steps() + 6, timeout=20)
        equal(errors_of_cudaw(self.job), [], "what cudaw said on stderr")

    def end(self):
        self.job.discard()
        self.let_all_go()


class Ranks(Held):
    """Two processes that only a command pauses together."""

    def __init__(self, name, held_call="cuMemCreate", how=""):
        self.held_call, self.how = held_call, how
        super().__init__(name, 2)

    def start(self):
        ranks = [" ".join(f"CUDAW_SIM_HOLD_{way}={file}" for way, file in files.items()) +
                 f" CUDAW_SIM_HELD_CALL={self.held_call} {self.how} '{COUNTER}' --mib {MEMORY} --allocs 1 "
                 "--steps 100000000 --step-ms 10 &" for files in self.files]
        return Job("/bin/sh", "-c", " ".join([*ranks, "wait"]), name=self.name)


class Sharers(Held):
    """Three processes that share memory; one that misses another one lives on. They copy only in a pause, as
    the first one waits for lines, and the others for that."""

    def __init__(self, name, held_call, *extra, env=None):
        self.held_call, self.extra, self.env = held_call, extra, env or {}
        super().__init__(name, 3)

    def start(self):
        job = Job("sharing", "--ranks", 3, "--objects", 2, "--mib", 2, "--steps", 100000000, "--each-line", 1,
                  "--apart", 1, "--stays", 1, *self.extra, name=self.name,
                  env={**self.env, "CUDAW_SIM_HELD_CALL": self.held_call,
                       **{f"CUDAW_SIM_HOLD_{way}": file[:-2] for way, file in self.files[0].items()}})
        job.process.stdin.write("\n" * 4)
        return job

    def goes_on(self):
        self.wait_states("running")
        self.job.make_steps(6)
        equal(errors_of_cudaw(self.job), [], "what cudaw said on stderr")


def pact(members):
    """As common/protocol/pact.c makes one."""
    fd = os.memfd_create("test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    head = struct.pack("=8sQIIII", b"cudawp1", time.monotonic_ns(), os.getpid(), members, 0, 0)
    os.truncate(fd, len(head) + members * (8 + 64 * 56))
    os.pwrite(fd, head, 0)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return fd


PAUSES = """
import socket, sys
pact, paths = int(sys.argv[1]), sys.argv[2:]
clients = [socket.socket(socket.AF_UNIX) for _ in paths]
for client, path in zip(clients, paths):
    client.connect(path)
    if pact:
        socket.send_fds(client, [b"pact\\n"], [pact])
    client.sendall(b"hold 60000 snapshot\\n")
files = [client.makefile() for client in clients]
for file in files:
    while not (line := file.readline()).startswith("held drained"):
        assert line and not line.startswith("end"), line
for client in clients:
    client.sendall(b"commit\\n")
print([file.read().splitlines()[-1] for file in files], flush=True)
for path in sys.stdin:
    clients.append(socket.socket(socket.AF_UNIX))
    clients[-1].connect(path.strip())
    socket.send_fds(clients[-1], [b"done /nowhere\\n"], [pact])
"""


class Pauser:
    """What cudaw snapshot is between the pause and the first part: all are paused for it, and have its pact."""

    def __init__(self, pids, pact=0):
        self.process = subprocess.Popen([sys.executable, "-c", PAUSES, str(pact), *map(self.socket, pids)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        pass_fds=[pact] if pact else [])
        equal(self.process.stdout.readline().strip(), str(["end ok"] * len(pids)), "the answers")

    def socket(self, pid):
        return f"{RUNTIME_DIR}/{pid}.sock"

    def say_done(self, pid):
        self.process.stdin.write(self.socket(pid) + "\n")
        self.process.stdin.flush()

    def kill(self):
        self.process.kill()
        self.process.communicate()


def with_room_for_one(ranks, release):
    """Both ranks are paused, and the GPU has room for one of them; returns who has the rest."""
    cudaw_ok("pause", "--release", release, ranks.name)
    return room_for_one(release)


def room_for_one(release):
    needs = MEMORY + 10 if release == "memory" else CONTEXT + MEMORY
    kept = 3 * CONTEXT if release == "memory" else CONTEXT
    return hog("--mib", GPU - kept - needs - 30)[0]
