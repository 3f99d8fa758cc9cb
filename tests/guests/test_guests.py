#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Programs of each kind that lives badly with interposers: a run under cudaw prints what a native one
does, and ends as that does, and our libraries say nothing. A guest that says "point" is paused and
resumed there in a third run, which comes out the same.

An argument, a pattern of names ("seccomp*"), runs some of them.
"""
import concurrent.futures
import fnmatch
import glob
import os
import re
import shutil
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from harness import (BUILD, SKIP_STATUS, Failure, Skip, check, equal, is_wanted, main,  # noqa: E402
                     need_other_users)
from simlib import errors_of_cudaw  # noqa: E402
from gpulib import SCRATCH, Job, cudaw, same_lines  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPTS = os.path.join(HERE, "programs")
BUILT = os.path.join(BUILD, "tests", "guests")
LIMIT_S = 15        # for a run, which takes 3 s at most where the machine is idle; times PATIENCE
PAUSES = 2


class Run(Job):
    """A job that this file ends itself: main() ends those of others after each case."""
    alive = []


class Guest:
    """
    A row of the table: a program with its arguments, native and under cudaw.

    env       more of the environment
    unordered the lines of several processes come in any order

    {libjemalloc.so.2} or {rank} among the values and arguments is the path of that library or guest.

    What is other under cudaw, and documented:

    under     the exit status, and {native line: line under cudaw}
    says      a pattern of all that our libraries say on stderr
    refused   a pattern of what the command says why this guest cannot be paused; it goes on all
              the same
    """

    def __init__(self, *command, env=None, unordered=False, under=None, says=None, refused=None):
        self.name = " ".join(command)
        self.command = command
        self.env = env or {}
        self.unordered = unordered
        self.under = under
        self.says = says
        self.refused = refused
        if env:
            self.name += "".join(f" {key}={value}" for key, value in env.items())


def found(program):
    """The command line of a program: a guest's, or one that is installed."""
    script = os.path.join(SCRIPTS, program)
    if program.endswith(".py"):
        return [sys.executable, script]
    if program.endswith(".pl"):
        return [needed("perl"), script]
    if program.endswith(".java"):
        return [needed("java"), "-cp", os.path.join(BUILT, "programs"), program.removesuffix(".java")]
    if program.endswith(".go"):
        needed("go")
        return [os.path.join(BUILT, "programs", program.replace(".go", "-go"))]
    built = os.path.join(BUILT, "programs", program)
    return [built] if os.path.exists(built) else [needed(program)]


def needed(program):
    path = shutil.which(program)
    if not path:
        raise Skip(f"no {program} on this machine")
    return path


def resolved(word):
    """A word of a row, with the path for {NAME}."""
    if not word.startswith("{"):
        return os.path.join(SCRIPTS, word) if word.endswith(".sh") else word
    name = word[1:-1]
    for path in [os.path.join(BUILT, "libs", name), os.path.join(BUILT, "programs", name),
                 *glob.glob(f"/usr/lib/*/{name}")]:
        if os.path.exists(path):
            return path
    raise Skip(f"no {name} on this machine")


class Outcome:
    def __init__(self, job, unordered):
        self.status = job.wait_end(LIMIT_S)
        lines = sorted(job.lines) if unordered else job.lines
        self.output = "\n".join(lines)
        self.stderr = job.stderr()
        self.ours = errors_of_cudaw(job) + [line for line in self.stderr.splitlines()
                                            if line.startswith("cudaw: ")]


def pause_and_resume(guest, name):
    for _ in range(PAUSES):
        for verb in ("pause", "resume"):
            done = cudaw(verb, name, timeout=LIMIT_S)
            if guest.refused:
                check(done.returncode and re.search(guest.refused, done.stderr),
                      f"cudaw {verb} exits with {done.returncode} and says {done.stderr!r}")
                return
            equal(done.returncode, 0, f"the exit code of cudaw {verb} ({done.stderr.strip()})")


def outcome_of(guest, mode, name=None):
    """Run it, in a group of its own; @name: pause and resume the job, too."""
    program, *args = guest.command
    program, *first = found(program)
    # Open MPI has its files in one directory there, with the PID of mpirun in the name; the last one that
    # ends removes what is above it, which another one may just have made.
    env = {"TMPDIR": tempfile.mkdtemp(dir=SCRATCH),
           **{key: resolved(value) for key, value in guest.env.items()}}
    job = Run(program, *first, *map(resolved, args), mode=mode, name=name, env=env)
    try:
        if name:
            job.wait_line("point")
            pause_and_resume(guest, name)
        return Outcome(job, guest.unordered)
    except Failure as failure:
        raise Failure(f"{failure}; it printed {job.lines[-3:]}, and on stderr "
                      f"{job.stderr()[-500:]!r}") from None
    finally:
        job.discard()


def check_same(guest, outcome, native, what):
    wanted, status = native.output, native.status
    if guest.under:
        status, lines = guest.under
        wanted = "\n".join(lines.get(line, line) for line in wanted.splitlines())
        check(wanted != native.output or status != native.status, "there is nothing other")
    told = f"; on stderr it said {outcome.stderr[-500:]!r}, natively {native.stderr[-200:]!r}"
    try:
        same_lines(outcome.output, wanted, what)
        equal(outcome.status, status, f"the exit status {what}")
    except Failure as failure:
        raise Failure(f"{failure}{told}") from None
    others = [line for line in outcome.ours if not (guest.says and re.search(guest.says, line))]
    equal(others, [], f"what our library said {what}")


def compare(guest, number):
    if guest.command in (("jail", "before", "setuid"), ("jail", "before", "seteuid")):
        need_other_users()      # the driver is opened by one
    native = outcome_of(guest, "native")
    if native.status == SKIP_STATUS:
        raise Skip(native.output.splitlines()[-1])
    check(native.output, f"natively it printed nothing, and on stderr {native.stderr!r}")
    check_same(guest, outcome_of(guest, "run"), native, "under cudaw")
    if "point" in native.output.splitlines():
        check_same(guest, outcome_of(guest, "run", f"guest{number}"), native, "paused and resumed")


# A signal to pause that comes before the first CUDA call is kept until then, so it ends nobody.
KEPT = (0, {f"signal {sig}: a child ended with {sig:#x}": f"signal {sig}: a child ended with 0"
            for sig in (10, 12)})
# A library that reaches past us for the C library finds our handler in the kernel.
FOUND = "signal {}: was {}, is ours, came 1 times, was ours, came 2 times, was {}"
PAST_US = (-15, {FOUND.format(15, "default", "ours"): FOUND.format(15, "default", "unknown"),
                 FOUND.format(10, "default", "ours"): FOUND.format(10, "unknown", "unknown")})
CHILDREN = ("vfork", "vfork-ignore", "vfork-raise", "vfork-handle", "vfork-as-is", "clone-vfork",
            "clone-vm", "clone-vm-raise", "clone", "fork", "posix-spawn", "system", "popen")
HANDLERS = ("sigaction", "siginfo", "nodefer", "restart", "mask", "signal", "ssignal", "sigset",
            "raw", "one-shot", "one-shot-twice", "held", "restarts", "wrong")
ENDINGS = ("destructors", "both", "pthread_exit", "cancel", "raw", "before", "c11", "main", "exit",
           "first", "quick", "beside")
MIB = 1 << 20
LIMITS = {"AS": 512 * MIB, "CORE": 0, "DATA": 64 * MIB, "FSIZE": 0, "LOCKS": 0, "MEMLOCK": 0,
          "MSGQUEUE": 0, "NICE": 0, "NOFILE": 16, "RTPRIO": 0, "RTTIME": 1000, "SIGPENDING": 0,
          "STACK": 256 << 10}
# The kinds of exceptions.
UNMANAGED = {"says": "cannot reserve .* addresses|no virtual memory at the addresses"}
NO_TABLES = {"says": "lacks memory for its tables", "refused": "no job|could not make its socket"}
NO_THREAD = {"says": "no thread", "refused": "no thread"}
NO_SOCKET = {"says": "no socket in|cannot be paused",
             "refused": "no job|could not make its socket"}
# Pinned memory is touched by madvise(), and what it does not hold is spilled to a locked file.
NO_HOST_MEMORY = {"refused": "host memory ran out|the spill file"}
NO_ANSWER = {"refused": "do not|no job|descriptor"}
LIMITED = {("before", "AS"): UNMANAGED, ("start", "AS"): UNMANAGED,
           ("before", "DATA"): NO_TABLES, ("start", "DATA"): NO_TABLES,
           ("after", "DATA"): NO_THREAD}
DENIED = {("before", "sockets"): NO_SOCKET, ("before", "pipes"): NO_SOCKET,
          ("after", "sockets"): NO_ANSWER, ("beside", "sockets"): NO_ANSWER,
          ("after", "threads"): NO_THREAD, ("beside", "threads"): NO_THREAD,
          **{(when, "locks"): NO_HOST_MEMORY for when in ("before", "after", "beside")}}
# Natively the simulated driver opens files, and starts threads, too.
DENIED_NATIVELY = {("before", "files"), ("before", "threads")}
CALLS = ("membarrier", "threads", "sockets", "files", "processes", "uring", "pipes", "locks",
         "scheduler")
# The real driver is looked for at the first CUDA call: natively it is loaded with the program.
NO_DRIVER = {("before", "chroot"), ("before", "environment")}
JAILS = ("chroot", "setuid", "seteuid", "directory", "undumpable", "session", "childless", "environment")
ALLOCATORS = ("libjemalloc.so.2", "libtcmalloc_minimal.so.4", "libmimalloc.so.2")

GUESTS = [
    *(Guest("spawn", way) for way in CHILDREN),
    *(Guest("spawn", way, "cuda") for way in CHILDREN),
    *(Guest("storm", way) for way in ("fork", "vfork", "_Fork", "clone", "posix_spawn")),
    *(Guest("handlers", way) for way in HANDLERS),
    Guest("handlers", "default", under=KEPT),
    *(Guest("altstack", way)
      for way in ("smallest", "usual", "thread", "not-asked-for", "ignored")),
    *(Guest("waits", way)
      for way in ("signalfd", "sigwait", "sigwaitinfo", "sigsuspend", "thread")),
    *(Guest("timers", way) for way in ("timer_create", "setitimer", "alarm", "profiler")),
    *(Guest("descriptors", when, how) for when in ("early", "late", "child")
      for how in ("closefrom", "close_range", "close")),
    Guest("descriptors", "dup"),
    *(Guest("descriptors", "stderr", kind, env={"CUDAW_NOTICES": "1"}) for kind in ("file", "socket")),
    *(Guest("limits", when, name, str(value), **LIMITED.get((when, name), {}))
      for name, value in LIMITS.items() for when in ("plain", "before", "after", "start")),
    Guest("limits", "after", "NOFILE", "3", **NO_ANSWER),
    Guest("limits", "after", "AS", "0", **NO_THREAD),
    Guest("limits", "plain", "NPROC", "0"),
    Guest("limits", "after", "NPROC", "0", **NO_THREAD),
    *(Guest("seccomp", when, name, **DENIED.get((when, name), {}))
      for when in ("before", "after", "beside") for name in CALLS
      if (when, name) not in DENIED_NATIVELY),
    Guest("seccomp", "strict"),
    *(Guest("jail", when, name)
      for when in ("plain", "before", "after") for name in JAILS if (when, name) not in NO_DRIVER),
    *(Guest("loading", way, env={"TEST_LIBRARY": "{deep.so}"})
      for way in ("deepbind", "local", "global", "dlclose", "next")),
    Guest("loading", "handlers", env={"TEST_LIBRARY": "{deep.so}"}, under=PAST_US),
    *(Guest("attributes", way) for way in ("stacks", "processor", "policy")),
    *(Guest("endings", way) for way in ENDINGS),
    *(Guest(*command, env={"LD_PRELOAD": f"{{{name}}}"}) for name in ALLOCATORS
      for command in (("allocate",), ("spawn", "vfork", "cuda"), ("endings", "both"),
                      ("processes.py", "subprocess"))),
    Guest("allocate"),
    *(Guest("processes.py", way)
      for way in ("subprocess", "interrupt", "interrupt-group", "terminate")),
    *(Guest("processes.py", "multiprocessing", way)
      for way in ("fork-first", "fork", "spawn", "forkserver")),
    *(Guest("processes.py", "asyncio", *way)
      for way in ((), ("ThreadedChildWatcher",), ("PidfdChildWatcher",), ("SafeChildWatcher",),
                  ("FastChildWatcher",), ("MultiLoopChildWatcher",))),
    *(Guest("signals.py", way) for way in ("signal", "wakeup", "dumps", "many")),
    *(Guest("signals.py", "crash", way) for way in ("segv", "abort", "fpe")),
    Guest("signals.pl"),
    Guest("signals.go"),
    Guest("Signals.java"),
    *(Guest(shell, "traps.sh") for shell in ("sh", "bash")),
    *(Guest("mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", "{rank}", way,
            unordered=True) for way in ("memory", "fails", "told")),
]


def cases():
    pattern = sys.argv[1] if len(sys.argv) > 1 else "*"
    chosen = [guest for guest in GUESTS if fnmatch.fnmatch(guest.name, pattern) and is_wanted(guest.name)]
    # What waits for a timer, or for the other run, leaves the processor to others.
    pool = concurrent.futures.ThreadPoolExecutor(2 * (os.cpu_count() or 1))
    for number, guest in enumerate(chosen):
        yield guest.name, pool.submit(compare, guest, number).result


main(*cases())
