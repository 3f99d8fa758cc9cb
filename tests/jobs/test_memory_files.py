#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Named files of /dev/shm that a job maps: snapshots carry them, with all names."""
import ctypes
import json
import os
import select
import signal
import struct
import subprocess

from restorelib import allow_stand_in, criu_after, directory, need_criu, refused, stands_in
import proclib
from simlib import unsanitized
from detached import Detached
from gpulib import BUILD, CUDAW, Skip, base_environment, check, cudaw_ok, equal, main, until

SHM = "/dev/shm"


def session_of(pid):
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return 0


class Spawning(Detached):
    def __init__(self):
        super().__init__("spawn_job.py", log_mode="a")
        self.wait_steps(3)
        self.block = self.lines()[0].split()[1]

    def names(self):
        """Of what is in /dev/shm of this job: the block's two, and those of semaphores that it has mapped."""
        return [name for name in os.listdir(SHM) if name.startswith(self.block)]

    def finish(self):
        os.kill(self.pid, signal.SIGINT)
        lines = self.wait_end(60)
        equal(lines[-1], "spawn_job: every step right", "the last line")
        equal(self.names(), [], "what it leaves in /dev/shm")

    def kill(self):
        """With its child and Python's tracker of resources, which removes the names."""
        ids = [int(name) for name in os.listdir("/proc") if name.isdigit() and session_of(int(name)) == self.pid]
        for pid in sorted(ids, reverse=True):
            os.kill(pid, signal.SIGKILL)
        until(lambda: self.is_gone() and not any(map(session_of, ids)), 20, "the job is gone")


def files_of(path):
    """The list in the process image."""
    host = next(name for name in os.listdir(path) if name.startswith("host-"))
    with open(f"{path}/{host}/host.json", encoding="ascii") as file:
        return json.load(file)["shared_files"]


def former_names(listed):
    return {name for one in listed for name in one["former"]}


class Gate:
    """Holds whoever opens a file, by fanotify(7)."""

    CLASS_CONTENT, MARK_ADD, OPEN_PERM, AT_FDCWD, ALLOW = 4, 1, 0x10000, -100, 1

    def __init__(self, path):
        libc = ctypes.CDLL(None)
        self.group = libc.fanotify_init(self.CLASS_CONTENT, os.O_RDONLY)
        if self.group < 0 or libc.fanotify_mark(self.group, self.MARK_ADD, ctypes.c_uint64(self.OPEN_PERM),
                                                self.AT_FDCWD, os.fsencode(path)):
            raise Skip("the kernel does not let us hold whoever opens a file")

    def wait(self, process):
        """Others, as CRIU, are let in meanwhile."""
        found = None
        while found != process:
            if found:
                self.let_in()
            check(select.select([self.group], [], [], 60)[0], "it does not open the file")
            self.file, found = struct.unpack("IBBHQii", os.read(self.group, 24))[5:]

    def let_in(self):
        os.write(self.group, struct.pack("iI", self.file, self.ALLOW))
        os.close(self.file)

    def end(self):
        self.let_in()
        os.close(self.group)


@unsanitized
def they_go_with_the_job_and_come_back():
    job, path = Spawning(), directory()
    cudaw_ok("snapshot", "--stop", job.pid, path)
    check(job.is_gone(), "the job is still there")
    equal(job.names(), [], "what is left in /dev/shm")
    listed = files_of(path)
    block = next(one for one in listed if job.block in one["names"])
    equal((sorted(block["names"]), block["former"], block["size"], block["mode"], block["directory"]),
          (sorted([job.block, f"{job.block}-again"]), [], 1 << 16, 0o600, SHM), "the block's names, size and mode")
    check(any(one["former"] for one in listed), f"no semaphore has a former name: {listed}")
    cudaw_ok("verify", path)
    if stands_in():
        check("no real CRIU" in refused("restore", path), "something does not fit")
    else:
        steps = job.steps()
        cudaw_ok("restore", path)
        equal(sorted(job.names()), sorted(block["names"]), "its names in /dev/shm")
        equal(former_names(listed) & set(os.listdir(SHM)), set(), "former names that are there")
        job.wait_steps(steps + 5)
        again = directory()
        cudaw_ok("snapshot", "--stop", job.pid, again)
        equal(former_names(files_of(again)), former_names(listed), "the former names of the second generation")
        cudaw_ok("restore", again)
        job.wait_steps(steps + 10)
        job.finish()
    names = {name for one in listed for name in one["names"] + one["former"]}
    equal(names & set(os.listdir(SHM)), set(), "its names that are left")


def a_job_that_is_rolled_back_has_what_it_had():
    need_criu()
    job, path = Spawning(), directory()
    cudaw_ok("snapshot", job.pid, path)
    equal(job.state(), "running", "the state")
    steps = job.steps()
    job.wait_steps(steps + 10)
    job.kill()
    check(job.names(), "it left nothing in /dev/shm, so nothing is replaced")
    cudaw_ok("restore", path)
    until(lambda: job.lines().count(f"step {steps + 10}") == 2, 30, "it makes the same steps again")
    job.finish()


@unsanitized
def what_is_there_by_now_is_named():
    job, path = Spawning(), directory()
    cudaw_ok("snapshot", "--stop", job.pid, path)
    check(job.is_gone(), "the job is still there")
    name = f"{SHM}/{job.block}"
    with open(name, "w", encoding="ascii") as file:
        file.write("another's")
    said = refused("restore", path)
    check(f"{name} is there, and the job needs its own" in said, said)
    with open(name, encoding="ascii") as file:
        equal(file.read(), "another's", "what it has then")
    os.unlink(name)
    if stands_in():
        check("no real CRIU" in refused("restore", path), "something does not fit")
    else:
        refused("restore", path, env=criu_after("restore", "exit 1"))
        equal(job.names(), [], "what a failed restore leaves")
        cudaw_ok("restore", path)
        job.finish()
    equal(job.names(), [], "what a failed restore leaves")


@unsanitized
def a_job_that_runs_while_they_are_copied_is_noticed():
    """What is copied then is not of the moment of CRIU's image."""
    job = Spawning()
    gate = Gate(f"{SHM}/{job.block}")
    with subprocess.Popen([CUDAW, "snapshot", "--stop", str(job.pid), directory()], env=base_environment(), text=True,
                          stderr=subprocess.PIPE) as command:
        gate.wait(command.pid)
        os.kill(job.pid, signal.SIGCONT)
        until(lambda: proclib.state(job.pid) != "T", 30, "it runs")
        os.kill(job.pid, signal.SIGSTOP)
        until(lambda: proclib.state(job.pid) == "T", 30, "it is stopped")
        gate.end()
        said = command.communicate(timeout=300)[1]
    equal(command.returncode, 1, f"the exit code ({said})")
    check("it was continued meanwhile" in said, said)
    equal(job.state(), "running", "the state")
    job.finish()


@unsanitized
def one_that_is_mapped_when_criu_begins_is_carried():
    """Nothing was stopped, as there was none before; so it is once more, stopped."""
    name, path = f"{SHM}/late-{os.getpid()}", directory()
    job = Detached("ctypes_job.py", "--steps", 1000000, "--step-ms", 10, "--map-late", name)
    try:
        job.wait_steps(3)
        maps = (f"{{ [ -e {name} ] || {{ echo data > {name}.new; mv {name}.new {name}; }}; "
                f"until grep -q {name} /proc/{job.pid}/maps; do sleep 0.02; done; }}")
        refused("snapshot", job.pid, path, code=0, env=criu_after("dump", maps))
    finally:
        if os.path.exists(name):
            os.unlink(name)
    equal([one["names"] for one in files_of(path)], [[os.path.basename(name)]], "the files of the snapshot")
    equal(job.state(), "running", "the state")
    os.kill(job.pid, signal.SIGKILL)


@unsanitized
def one_that_another_program_has_is_named():
    job = Spawning()
    with open(f"{SHM}/{job.block}", "rb"):
        said = refused("snapshot", "--stop", job.pid, directory(), code=6)
    check(f"process {os.getpid()}, which is not part of the job, has a file in memory" in said, said)
    said = refused("snapshot", job.pid, directory(), code=6, env={"LD_PRELOAD": f"{BUILD}/tests/preload/nosignal.so"})
    check("(pidfd_open), which signals to processes need" in said, said)
    equal(job.state(), "running", "the state")
    job.finish()


def a_child_that_was_stopped_stays_so():
    """All are stopped for the snapshot, and continued after the restore, except this one."""
    need_criu()
    job, path = Spawning(), directory()
    child = next(pid for pid in proclib.with_command("spawn_main") if session_of(pid) == job.pid)
    os.kill(child, signal.SIGSTOP)
    cudaw_ok("snapshot", "--stop", job.pid, path)
    check(job.is_gone(), "the job is still there")
    steps = job.steps()
    cudaw_ok("restore", path)
    equal(proclib.state(child), "T", "the child's state")
    os.kill(child, signal.SIGCONT)
    job.wait_steps(steps + 3)
    job.finish()


if __name__ == "__main__":
    allow_stand_in()
    main(they_go_with_the_job_and_come_back, a_job_that_is_rolled_back_has_what_it_had, what_is_there_by_now_is_named,
         a_job_that_runs_while_they_are_copied_is_noticed, one_that_is_mapped_when_criu_begins_is_carried,
         one_that_another_program_has_is_named, a_child_that_was_stopped_stays_so)
