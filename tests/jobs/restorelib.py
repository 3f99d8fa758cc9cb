# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests of cudaw restore on the simulated driver."""
import contextlib
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

from simlib import SANITIZED, SCRATCH
from harness import SKIP_STATUS, open_terminal
from detached import Detached, why_no_criu
from gpulib import BUILD, CUDAW, PATIENCE, Skip, base_environment, check, cudaw_ok, equal, jobs, until
from snapshotjobs import ask, contents

# The account of the simulated GPUs has locks of its own on a file that a copy would share.
os.environ.pop("CUDAW_SIM_SHARED", None)
os.environ["TMPDIR"] = SCRATCH      # for what a CRIU that failed leaves behind


def directory():
    return os.path.join(tempfile.mkdtemp(dir=SCRATCH), "snapshot")


class Counting(Detached):
    def __init__(self, program="counter", *args, **options):
        super().__init__(program, *args, "--mib", 32, "--steps", 1000000, "--step-ms", 10, **options)
        self.wait_steps(3)

    def finish(self):
        """It ends well, and no step is missing or there twice."""
        os.kill(self.pid, signal.SIGINT)
        lines = self.wait_end(30)
        check("every word right" in lines[-1], f"the log ends with {lines[-3:]}")
        steps = [int(line.split()[1]) for line in lines if line.startswith("step ")]
        equal(steps, list(range(1, len(steps) + 1)), "the steps")


def nvml(**env):
    """The environment in which there is one."""
    libraries = tempfile.mkdtemp(dir=SCRATCH)
    shutil.copy(f"{BUILD}/tests/preload/nvml.so", f"{libraries}/libnvidia-ml.so.1")
    return {"LD_LIBRARY_PATH": libraries, **{f"TEST_NVML_{key}": str(env[key]) for key in env}}


STAND_IN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "stand_in_criu")


def why_not():
    """Why CRIU cannot be used here; nothing where it can."""
    if SANITIZED:
        return "CRIU does not take a process with the sanitizers' shadow memory"
    if stands_in():
        return "there is no CRIU that will do"
    return why_no_criu()


def need_criu():
    if why_not():
        raise Skip(why_not())


def allow_stand_in():
    """What is checked before CRIU is to start a job can be tested without one, by root."""
    if os.getuid() != 0:
        print("1..0 # SKIP process images take root", flush=True)
        sys.exit(SKIP_STATUS)
    if why_not():
        os.environ["CUDAW_CRIU"] = STAND_IN


def stands_in():
    return os.environ.get("CUDAW_CRIU") == STAND_IN


def refused(*args, code=1, env=None, **options):
    done = subprocess.run([os.path.join(BUILD, "bin", "cudaw"), *map(str, args)], text=True,
                          capture_output=True, timeout=300, check=False,
                          env={**base_environment(), **(env or {})}, **options)
    equal(done.returncode, code, f"the exit code of cudaw {args} ({done.stderr.strip()})")
    return done.stderr


def pretended_criu(script):
    path = os.path.join(tempfile.mkdtemp(dir=SCRATCH), "criu")
    with open(path, "w", encoding="ascii") as file:
        file.write("#!/bin/sh\n" + script)
    os.chmod(path, 0o755)
    return {"CUDAW_CRIU": path}


def criu_after(verb, command):
    """The one that is used, after a command of the shell where it is to do @verb."""
    criu = os.environ.get("CUDAW_CRIU", "criu")
    return pretended_criu(f'[ "$1" = {verb} ] && {command}\nexec {criu} "$@"\n')


def killed_at_any_moment(rng, seconds, *options):
    """
    A snapshot that is killed before so many seconds have passed; its exit code. All that it has started has ended, too,
    as CRIU does by itself: they have a pipe open, also before they are executed.
    """
    reads, writes = os.pipe()
    process = subprocess.Popen([CUDAW, "snapshot", *map(str, options)], stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, env=base_environment(), pass_fds=[writes])
    os.close(writes)
    time.sleep(rng.uniform(0, seconds))
    process.kill()
    process.wait()
    check(select.select([reads], [], [], 60 * PATIENCE)[0], "CRIU does not end")
    os.close(reads)
    return process.returncode


def watched_criu(job):
    """restores() tells whether it was to restore anything. A stand-in's process makes the file if it runs."""
    ran = os.path.join(tempfile.mkdtemp(dir=SCRATCH), "ran")
    return ran, criu_after("restore", f': > "$0.restores"; export STAND_IN_STARTS={job.pid}:{ran}')


def restores(criu):
    return os.path.exists(criu["CUDAW_CRIU"] + ".restores")


@contextlib.contextmanager
def unheard():
    """The end of a pipe that nobody reads."""
    theirs, mine = os.pipe()
    os.close(theirs)
    yield mine
    os.close(mine)


class Terminal:
    """A terminal for a job or a command; what comes out of it is read and kept."""

    def __init__(self):
        self.master, self.slave = open_terminal()
        self.text = b""
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        with contextlib.suppress(OSError):
            while chunk := os.read(self.master, 65536):
                self.text += chunk

    def read_to_end(self):
        """When those that wrote to it have ended: what they wrote may not be read yet."""
        os.close(self.slave)
        self.reader.join(30)

    def lines(self):
        return list(filter(None, re.split(r"[\r\n]+", self.text.decode(errors="replace"))))


def goes_on(job, *arguments):
    """All fits for cudaw restore, so CRIU is to start the job; it goes on, where CRIU is a real one."""
    if stands_in():
        check("no real CRIU" in refused("restore", *arguments), "something does not fit")
        return
    steps = job.steps()
    cudaw_ok("restore", *arguments)
    job.wait_steps(steps + 3)
    job.finish()


def stopped(path=None, **options):
    """A job that is nowhere but in its snapshot."""
    if not stands_in():
        need_criu()
    path = path or directory()
    job = Counting(**options)
    cudaw_ok("snapshot", "--stop", job.pid, path)
    check(job.is_gone(), "the job is still there")
    equal(jobs(), {}, "what cudaw ps lists")
    cudaw_ok("verify", path)
    return job, path


def nobody_writes_there(path):
    """Not while a paused job has its memory nowhere else: the command looks, and a lock is there."""
    other = Counting()
    check("may have its memory in it" in refused("snapshot", "--gpu-only", other.pid, path),
          "another job may write there")
    said = ask(other, f"snapshot pause none {path}")[-1]
    check("another process reads or writes" in said, f"there is no lock: {said}")
    equal(other.state(), "running", "the other's state")
    other.wait_steps(other.steps() + 3)
    other.finish()


# What a pretended CRIU makes of an image: the file that shows whose it is.
IMAGE = """
while [ $# -gt 1 ]; do
    case $1 in
    --images-dir) images=$2 ;;
    --work-dir) work=$2 ;;
    --tree) pid=$2 ;;
    esac
    shift
done
: > $images/core-$pid.img
"""

VERSION = """
[ "$1" = --version ] && { echo Version: 4.2; exit; }
"""

# It waits, five minutes at most, until it is let go on.
WAITS = VERSION + """
: > "$0.begun"
for _ in $(seq 15000); do [ -e "$0.go" ] && break; sleep 0.02; done
""" + IMAGE + 'exit $(cat "$0.go")'


class Snapshot:
    """The command, under way; its CRIU is a pretended one."""

    def __init__(self, job, *options, path=None, env=None, **process):
        """@process is of subprocess.Popen's options."""
        self.path = path or directory()
        self.criu = pretended_criu(WAITS)
        self.process = subprocess.Popen(
            [CUDAW, "snapshot", *options, str(job.pid), self.path], text=True,
            env={**base_environment(), **self.criu, **(env or {})}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            **process)

    def in_criu(self):
        until(lambda: os.path.exists(self.criu["CUDAW_CRIU"] + ".begun"), 30, "CRIU begins")
        return self

    def let_criu_go(self, code=0):
        with open(self.criu["CUDAW_CRIU"] + ".new", "w", encoding="ascii") as file:
            file.write(str(code))
        os.rename(self.criu["CUDAW_CRIU"] + ".new", self.criu["CUDAW_CRIU"] + ".go")

    def end(self, code=0):
        said, errors = self.process.communicate(timeout=300)
        equal(self.process.returncode, code, f"the exit code ({errors.strip()})")
        return said + errors


@contextlib.contextmanager
def commit_held(job, fails=""):
    """A snapshot of it, whose commit waits for the end of the block, and fails if there is a text."""
    path = directory()
    renames = os.path.join(os.path.dirname(path), "renames")
    snapshot = Snapshot(job, path=path, env={
        "LD_PRELOAD": os.path.join(BUILD, "tests", "preload", "continues.so"),
        "ASAN_OPTIONS": "verify_asan_link_order=0", "TEST_RENAMES": renames}).in_criu()
    yield snapshot
    check("manifest.json" not in contents(path), "the snapshot is committed")
    with open(renames + ".new", "w", encoding="ascii") as file:
        file.write(fails)
    os.rename(renames + ".new", renames)
