# SPDX-License-Identifier: Apache-2.0
"""Shared by all tests in Python: checks, cases and their TAP, scratch directories, processes' ends.

A test is a program that hands its cases to main(). It takes the names of this module from the
library of its own directory (clilib, gpulib, simlib, benchlib), which puts the directory of this
file on sys.path; a test in a directory without a library does that itself. This module then adds
the directories of all these libraries.

BUILD in the environment is the build directory.
"""
import atexit
import fnmatch
import glob
import inspect
import os
import pty
import random
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import traceback

# No settings of the user's who runs the tests.
os.environ["XDG_CONFIG_HOME"] = "/nonexistent"
os.environ.setdefault("CUDAW_NOTICES", "0")

TESTS = os.path.dirname(os.path.abspath(__file__))
sys.path.extend(os.path.join(TESTS, room) for room in ("cli", "gpu", "jobs"))

BUILD = os.path.abspath(os.environ.get("BUILD", "build"))
CUDAW = os.path.join(os.environ.get("TEST_BIN", os.path.join(BUILD, "bin")), "cudaw")
SKIP_STATUS = 77
CERTAIN_STATUS = 3      # a failed case is certain: tests/runner.py
# Of a program: STEP_WRONG_DATA and STEP_SANITIZER of tests/programs/step.h.
WRONG_DATA_STATUS = 65
SANITIZER_STATUS = 86
CRASHES = {-number for number in (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT,
                                  signal.SIGSYS, signal.SIGTRAP)}
# Times what a case does again and again: "make soak" has more.
REPEATS = int(os.environ.get("REPEATS", "1"))
# Times the seconds that a timeout says: a loaded machine may be that much slower, and sanitizers make it so.
PATIENCE = 5 * int(os.environ.get("TEST_PATIENCE", "1")) * (
    {"": 1, "thread": 4}.get(os.environ.get("SANITIZE", ""), 2))


class Failure(Exception):
    """A case did not come out as it must."""


class CertainFailure(Failure):
    """It did not, and no clock had a part in it: running it again could only hide it."""


class WrongData(CertainFailure):
    """Bytes are not what they must be."""


class Crash(CertainFailure):
    """A signal has ended a process of ours."""


class Skip(Exception):
    """A case cannot be run on this machine; says why."""


# ---- checks

def check(condition, what):
    if not condition:
        raise Failure(what)


def equal(found, wanted, what="it"):
    check(found == wanted, f"{what} is {found!r}, should be {wanted!r}")


def contains(text, part):
    check(part in text, f"{part!r} is not in {text!r}")


def until(condition, timeout, what):
    """Poll until condition() is true, and return its value; fail after PATIENCE times @timeout
    seconds."""
    timeout *= PATIENCE
    end = time.monotonic() + timeout
    while True:
        late = time.monotonic() >= end  # before it looks: it may be held up behind that
        value = condition()
        if value:
            return value
        check(not late, f"not within {timeout} s: {what}")
        time.sleep(0.02)


def answered(ps):
    """The rows of `cudaw ps --json` that ps() gives. The command waits a second for a process: one that was
    not run for so long is asked again."""
    for _ in range(2 * PATIENCE):
        rows = ps()
        if all(row["error"] != "no answer" for row in rows):
            break
        print("# a job gave no answer", flush=True)
    return rows


# ---- what a machine may lack

def need_other_users():
    """Others can reach what was built."""
    path = BUILD
    while path != "/":
        try:
            mode = os.stat(path).st_mode
        except PermissionError:     # the case is another user already
            mode = 0
        if not mode & stat.S_IXOTH:
            raise Skip(f"other users cannot go into {path}")
        path = os.path.dirname(path)


def open_terminal():
    """The two descriptors of a pseudoterminal, the program's last."""
    try:
        return pty.openpty()
    except OSError as error:
        raise Skip(f"no pseudoterminal can be opened: {error}") from error


# ---- resources of a run

def scratch(mode=0o755):
    """A directory that is removed at the end; other users may look into it. /tmp may be memory."""
    path = tempfile.mkdtemp(prefix="cudaw-test-", dir=os.environ.get("TMPDIR", "/var/tmp"))
    os.chmod(path, mode)
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


_processes = []


def ends_with_us(process):
    """Kill the process, if it still runs, when the tests end; returns it."""
    _processes.append(process)
    return process


def sleeping_as(wanted):
    """A process that has this id; only root can choose."""
    for _ in range(100):
        try:
            with open("/proc/sys/kernel/ns_last_pid", "w", encoding="ascii") as file:
                file.write(str(wanted - 1))
        except OSError as error:
            raise Skip(f"ns_last_pid: {error}") from None
        process = ends_with_us(subprocess.Popen(["sleep", "1000"]))
        if process.pid == wanted:
            return process
        process.kill()
        process.wait()
    raise Skip(f"no process got the id {wanted}")


@atexit.register
def _end_processes():
    for process in _processes:
        process.kill()
        process.wait()


def faces():
    """The directory with our libraries."""
    found = sorted(glob.glob(os.path.join(BUILD, "lib", "cudaw-*", "libcuda.so.1")))
    check(found, f"no libcuda.so.1 under {BUILD}/lib/cudaw-*: run make, or set BUILD")
    return os.path.dirname(found[-1])


def seeded():
    """The generator behind a test's random moments; its seed is printed, and can be given."""
    seed = int(os.environ.get("CUDAW_TEST_SEED", "20"))
    print(f"# CUDAW_TEST_SEED={seed}", flush=True)
    return random.Random(seed)


def figure(name, value, unit):
    """A measurement, for the runner's results.json, where the words of @name have _ between them."""
    print(f"figure {name.replace(' ', '_')} {value:.4g} {unit}", flush=True)


def judge_end(what, status):
    """Raise what the exit status of a process says for certain: it crashed, or found wrong data."""
    if status in CRASHES:
        raise Crash(f"{what} ended by {signal.Signals(-status).name}")
    if status == SANITIZER_STATUS:
        raise Crash(f"{what} was ended by a sanitizer")
    if status == WRONG_DATA_STATUS:
        raise WrongData(f"{what} found wrong data")


# ---- cases

certain_failures = []   # what each is


def note_end(status):
    """Of a process that has ended before a case failed: it may be the cause."""
    try:
        judge_end("a job", status)
    except CertainFailure as why:
        certain_failures.append(str(why))


# Functions that clean up after each case, in the reverse order; the argument is whether it passed.
after_case = []


def is_certain(error):
    """A command of ours that does not end is a hang; any other program may be too slow."""
    if isinstance(error, subprocess.TimeoutExpired):
        return CUDAW in error.cmd
    return isinstance(error, CertainFailure)


def note_of(error):
    """What a TAP point says of it."""
    print("".join(f"# {line}\n" for line in traceback.format_exc().splitlines()), end="")
    if is_certain(error):
        certain_failures.append(str(error))
    return ": " + " ".join(str(error).split()).replace("#", "\\#")


def run_case(number, name, case):
    """Run one case and print its TAP point; returns False where it failed."""
    good, note = True, ""
    try:
        case()
    except Skip as skip:
        note = f" # SKIP {skip}"
    except Exception as error:  # whatever a case raises is its failure
        good, note = False, note_of(error)
    for undo in reversed(after_case):
        try:
            undo(good)
        except Exception as error:
            # What fails in a case may be the cause of what fails after it.
            later = note_of(error)
            good, note = False, later if good else note
    print(f"{'ok' if good else 'not ok'} {number} - {name}{note}", flush=True)
    return good


def own_cases():
    """The functions test_* of the program, in order."""
    return [(name[5:].replace("_", " "), function)
            for name, function in vars(sys.modules["__main__"]).items()
            if name.startswith("test_") and inspect.isfunction(function)]


def is_wanted(name):
    """TEST_CASES in the environment has patterns of the cases that are run alone, with "_" for spaces."""
    patterns = os.environ.get("TEST_CASES", "").split()
    return not patterns or any(fnmatch.fnmatch(name.replace(" ", "_"), pattern) for pattern in patterns)


def main(*cases):
    """Run the cases that are wanted, functions or (name, function) pairs, and exit; without any,
    own_cases(). TEST_NUMBERS in the environment has the numbers of those which are run again alone."""
    named = [case if isinstance(case, tuple) else (case.__name__.replace("_", " "), case)
             for case in cases or own_cases()]
    named = [case for case in named if is_wanted(case[0])]
    if numbers := os.environ.get("TEST_NUMBERS", "").split():
        named = [named[int(number) - 1] for number in numbers]
    print(f"1..{len(named)}", flush=True)
    failed = 0
    for number, (name, function) in enumerate(named, 1):
        failed += not run_case(number, name, function)
    sys.exit(CERTAIN_STATUS if certain_failures else 1 if failed else 0)
