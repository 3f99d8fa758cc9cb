#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Clients that hang up, stop, stay silent or crowd, and operations that cannot begin: whoever asks
is answered, once, and the last wish wins."""
import contextlib
import os
import resource
import signal
import socket
import subprocess
import sys
import time

from simlib import HELD, cpu_seconds, held_back, hold, is_quiet, kept_descriptors, let_go, let_through, unsanitized
from snapshotjobs import ask, connected, counter, directory, end_of, finish, told
from gpulib import (CUDAW, PATIENCE, RUNTIME_DIR, Job, base_environment, check, cudaw, cudaw_ok, equal, jobs,
                    main, until)

ALL_CLIENTS = 32


def held(job, request):
    """A client that holds the job, which has reported."""
    client = connected(job, request)
    until(lambda: b"held drained" in client.recv(4096), 10, "the job is held")
    return client


def draining():
    """A job whose kernel does not end, and a client that waits for its pause."""
    job = Job("spin", "--steps", 1000000, "--step-ms", 10)
    job.until(lambda: job.lines, 10, "spin has begun")
    client = connected(job, b"pause 600000\n")
    job.wait_state("pausing")
    return job, client


def requesters_of_a_pending_snapshot_that_hang_up():
    """Each is forgotten once; the job goes on to answer, and can be asked for another."""
    job, pause = draining()
    for _ in range(3):
        client = connected(job, f"snapshot pause image none {directory()}\n".encode())
        until(lambda: client.recv(4096), 10, "it is told how far the pause is")
        client.close()
        equal(job.state(), "pausing", "the state")
    equal(cudaw("resume", job.pid, timeout=10).returncode, 0, "the exit code of the resume")
    check(end_of(pause).startswith("end busy"), "the pause was not answered")
    equal(job.state(), "running", "the state")
    job.discard()


def a_regain_while_a_snapshot_is_pending():
    """Both are answered, and the regain is the client that it was."""
    job, pause = draining()
    snapshots = connected(job, f"snapshot none {directory()}\n".encode())
    until(lambda: snapshots.recv(4096), 10, "it is told how far the pause is")
    regain = connected(job, b"regain\ncommit\n")
    equal(end_of(snapshots), "end busy superseded by a later resume", "the snapshot's end")
    check(end_of(pause).startswith("end busy"), "the pause was not answered")
    equal(end_of(regain), "end ok", "the answer to the regain")
    equal(job.state(), "running", "the state")
    job.discard()


def a_resume_takes_over_from_one_that_is_stuck():
    """Its command may be stopped; it hears of it when it goes on."""
    ways = {"resume": lambda job: cudaw_ok("resume", job.pid),
            "a signal": lambda job: (job.send(signal.SIGUSR2), job.wait_state("running")),
            "regain": lambda job: take_over(job)}

    def take_over(job):
        client = held(job, b"regain\n")
        client.sendall(b"commit\n")
        equal(end_of(client), "end ok", "the answer to the second regain")

    for name, resume in ways.items():
        job = counter()
        job.pause()
        stuck = held(job, b"regain\n")
        equal(job.state(), "resuming", "the state while a client holds it")
        resume(job)
        equal(job.state(), "running", f"the state after {name}")
        equal(end_of(stuck), "end ok", f"what the first one hears after {name}")
        finish(job)


def a_first_holder_no_longer_undoes_a_resume():
    job = counter()
    job.pause()
    first, second = held(job, b"regain\n"), held(job, b"regain\n")
    first.sendall(b"abort\n")
    first.close()
    equal(job.state(), "resuming", "the state")
    second.sendall(b"commit\n")
    equal(end_of(second), "end ok", "the answer")
    equal(job.state(), "running", "the state")
    finish(job)


def a_pause_takes_over_from_one_that_is_stuck():
    job = counter()
    stuck = held(job, b"hold 600000\n")
    equal(job.state(), "pausing", "the state while a client holds it")
    cudaw_ok("pause", job.pid)
    stuck.close()
    equal(job.state(), "paused", "the state")
    job.resume()
    finish(job)


def a_resume_ends_the_questions_of_a_pause():
    """For the events and streams of the program, of which there may be many: the next is not asked for."""
    job = Job("hostwork", env={**HELD, "CUDAW_SIM_HELD_CALL": "cuStreamQuery"})
    job.wait_line("waits")
    job.tell()
    job.wait_line("through")
    hold("call")
    pause = connected(job, b"pause 600000\n")
    until(lambda: held_back("call"), 10, "the driver is asked for the first")
    resume = connected(job, b"resume\n")
    until(lambda: resume.recv(4096), 10, "it is told how far the pause is")
    let_through("call")
    check(end_of(pause).startswith("end busy cancelled"), "the pause was not cancelled")
    let_go("call")
    job.tell()
    job.result()


def requests_that_wait_are_taken_in_order():
    """They come while the process is stopped: the last one counts."""
    job = counter()
    job.send(signal.SIGSTOP)
    pause, resume = connected(job, b"pause\n"), connected(job, b"resume\n")
    job.send(signal.SIGCONT)
    equal(end_of(resume), "end ok", "the answer to the resume")
    end_of(pause)
    equal(job.state(), "running", "the state")
    finish(job)


def lines_that_are_none():
    job = counter(16)
    for request in (b"sta\0tus\n", b"\0\n", b"pause\0", b"done /tmp\0x\n"):
        equal(end_of(connected(job, request)), "end invalid a line contains a NUL byte", request)
    equal(end_of(connected(job, b"x" * 4096)), "end invalid a line is longer than 4096 bytes",
          "the answer to a long line")
    equal(job.state(), "running", "the state")
    finish(job)


def descriptors_that_come_with_a_request():
    """However many come, in whatever order, none is left."""
    job = counter(16)
    equal(ask(job, "status")[-1], "end ok", "the answer without one")
    before = kept_descriptors(job.pid)
    with open("/dev/null", "rb") as file:
        for count in (1, 2, 3, 20):
            client = connected(job)
            for part in (b"stat", b"us\n"):
                socket.send_fds(client, [part], [file.fileno()] * count)
            equal(end_of(client), "end ok", f"the answer with {count} descriptors")
            client.close()
    until(lambda: kept_descriptors(job.pid) == before, 10, "its descriptors are those of before")
    finish(job)


def silent_clients_make_room():
    job = counter(16)
    silent = [connected(job) for _ in range(2 * ALL_CLIENTS)]
    for _ in range(3):
        equal(ask(job, "status")[-1], "end ok", "the answer beside silent clients")
    check(any(b"end busy no request came" in client.recv(4096) for client in silent[:1]),
          "the first was not told")
    cudaw_ok("pause", job.pid)
    cudaw_ok("resume", job.pid)
    finish(job)


def one_is_turned_away_where_all_wait():
    job, first = draining()
    clients = [first] + [connected(job, b"pause 600000\n") for _ in range(ALL_CLIENTS - 1)]
    until(lambda: ask(job, "status")[-1].startswith("end busy all connections"), 10,
          "a client is turned away")
    clients.pop().close()
    until(lambda: ask(job, "status")[-1] == "end ok", 10, "there is room again")
    for client in clients[1:]:
        client.close()
    cudaw_ok("resume", job.pid)
    check(end_of(first).startswith("end busy"), "the first one was not answered")
    job.discard()


@contextlib.contextmanager
def no_threads(job):
    """There is no address space for another stack."""
    with open(f"/proc/{job.pid}/statm", encoding="ascii") as file:
        size = int(file.read().split()[0]) * resource.getpagesize()
    saved = resource.prlimit(job.pid, resource.RLIMIT_AS)
    resource.prlimit(job.pid, resource.RLIMIT_AS, (size + (1 << 20), saved[1]))
    yield
    resource.prlimit(job.pid, resource.RLIMIT_AS, saved)


def operations_that_get_no_thread():
    """A request is told; a signal's wish is kept until there is one."""
    job = counter(16)
    with no_threads(job):
        done = cudaw("pause", job.pid)
        check("no thread can be started: Resource temporarily unavailable" in done.stderr,
              f"cudaw pause says {done.stderr!r}")
        equal(job.state(), "running", "the state after the request")
        job.send(signal.SIGUSR1)
        until(lambda: "an operation cannot begin" in job.stderr(), 10, "it is said")
        time.sleep(1.5)     # it is tried again, in vain
        equal(job.state(), "running", "the state without a thread")
    job.wait_state("paused")
    equal(job.stderr().count("an operation cannot begin"), 1, "how often it is said")
    job.resume()
    finish(job)


# Its threads have large stacks, for which there is no address space at first.
LATE = """
import ctypes, resource, signal, sys
signal.alarm(60)
cuda = ctypes.CDLL("libcuda.so.1")
saved = resource.getrlimit(resource.RLIMIT_AS)
with open("/proc/self/statm") as file:
    size = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + (768 << 20), saved[1]))
print(cuda.cuInit(0), flush=True)
resource.setrlimit(resource.RLIMIT_AS, saved)
context, memory = ctypes.c_void_p(), ctypes.c_uint64()
print(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), cuda.cuCtxSetCurrent(context),
      cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(1 << 50)), flush=True)
sys.stdin.readline()
print(cuda.cuInit(0), flush=True)
sys.stdin.readline()
"""


def a_control_thread_that_comes_late():
    """It is tried again by the next cuInit(), and is not missed by the program: nor by an allocation
    that would wait for a daemon's answer."""
    late = subprocess.Popen(["sh", "-c", 'ulimit -s 2000000; exec "$@"', "sh", CUDAW, "run", "--",
                             sys.executable, "-c", LATE], env={**base_environment(), "CUDAW_TURNS": "user"},
                            text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE)
    try:
        equal(late.stdout.readline(), "0\n", "what the first cuInit() returns")
        equal(late.stdout.readline(), "0 0 2\n", "what its calls return")
        check(late.pid not in jobs(), "it has a control thread")
        print(file=late.stdin, flush=True)
        equal(late.stdout.readline(), "0\n", "what the second cuInit() returns")
        until(lambda: late.pid in jobs(), 10, "it answers")
        cudaw_ok("pause", late.pid)
        cudaw_ok("resume", late.pid)
    finally:
        _, said = late.communicate(timeout=30 * PATIENCE)
    equal(said.count("no control thread: Resource temporarily unavailable"), 1, f"how often {said!r} has it")
    equal(late.returncode, 0, "the exit status")


CLOSES = """
import ctypes, os, sys
cuda = ctypes.CDLL("libcuda.so.1")
cuda.cuInit(0)
print(flush=True)
sys.stdin.readline()
os.closerange(3, 256)
files = [os.eventfd(1, os.EFD_NONBLOCK) for _ in range(256 if "again" in sys.argv else 0)]
print(flush=True)
sys.stdin.readline()
for file in files:
    assert os.eventfd_read(file) == 1
"""


def a_program_that_closes_what_is_not_its_own():
    """The job is reached by new descriptors, and costs the program no time."""
    program = subprocess.Popen([CUDAW, "run", "--", sys.executable, "-c", CLOSES], text=True,
                               env=base_environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        program.stdout.readline()
        until(lambda: program.pid in jobs(), 10, "it answers")
        print(file=program.stdin, flush=True)
        until(lambda: jobs().get(program.pid, {}).get("state") == "running", 10, "it answers again")
        before = cpu_seconds(program.pid)
        time.sleep(1)
        spent = cpu_seconds(program.pid) - before
        check(spent < 0.3, f"it spent {spent} s in a second")
        os.kill(program.pid, signal.SIGUSR1)
        until(lambda: jobs()[program.pid]["state"] == "paused", 10, "a signal pauses it")
        cudaw_ok("resume", program.pid)
    finally:
        program.communicate(timeout=30 * PATIENCE)
    equal(program.returncode, 0, "the exit status")


def a_program_that_has_the_numbers_of_ours():
    """What came with a hold is gone with it: its number is the program's, and no word of the client's."""
    program = subprocess.Popen([CUDAW, "run", "--", sys.executable, "-c", CLOSES, "again"], text=True,
                               env=base_environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        program.stdout.readline()
        until(lambda: program.pid in jobs(), 10, "it answers")
        client = socket.socket(socket.AF_UNIX)
        client.connect(os.path.join(RUNTIME_DIR, f"{program.pid}.sock"))
        token = os.eventfd(0)
        socket.send_fds(client, [b"hold\n"], [token])
        os.close(token)
        until(lambda: b"held drained" in client.recv(4096), 10, "the job is held")
        print(file=program.stdin, flush=True)
        program.stdout.readline()
        client.close()
        until(lambda: jobs().get(program.pid, {}).get("state") == "running", 10, "it runs on")
    finally:
        program.communicate(timeout=30 * PATIENCE)
    equal(program.returncode, 0, "the exit status")


# All is opened after the standard streams were closed, except the file from which a line comes.
WITHOUT_STREAMS = """
import ctypes, os, signal
signal.alarm(60)
line = os.dup(0)
os.closerange(0, 3)
cuda = ctypes.CDLL("libcuda.so.1")
context, memory = ctypes.c_void_p(), ctypes.c_uint64()
calls = [cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), cuda.cuCtxSetCurrent(context),
         cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(4 << 20))]
os.read(line, 1)
assert not any(calls) and not cuda.cuCtxSynchronize()
"""


def a_program_without_standard_streams():
    """It may print nevertheless: none of our descriptors has one of their numbers."""
    program = subprocess.Popen([CUDAW, "run", "--", sys.executable, "-c", WITHOUT_STREAMS],
                               env=base_environment(), stdin=subprocess.PIPE)

    def check_numbers(when):
        until(lambda: is_quiet(program.pid), 10, f"it has nothing to do {when}")
        equal([f"{n}: {link}" for n, link in kept_descriptors(program.pid).items() if n < 3], [],
              f"the streams {when}")

    try:
        until(lambda: program.pid in jobs(), 10, "it answers")
        check_numbers("before a pause")
        cudaw_ok("pause", program.pid)
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(os.path.join(RUNTIME_DIR, f"{program.pid}.sock"))
            until(lambda: any("socket" in link for link in kept_descriptors(program.pid).values()), 10, "it is in")
            check_numbers("while it is paused")
        cudaw_ok("resume", program.pid)
        check_numbers("after it")
    finally:
        program.communicate(b"\n", timeout=30 * PATIENCE)
    equal(program.returncode, 0, "the exit status")


def a_directory_that_is_another_snapshots():
    """It is not taken, and the job stays what it was."""
    one, two, where, other = counter(16), counter(16), directory(), directory()
    cudaw_ok("snapshot", "--gpu-only", two.pid, other)
    equal(ask(one, f"snapshot pause hold none {where}")[-1], "end ok", "the answer")
    for path in (other, os.path.dirname(where), "/nowhere"):
        said = ask(one, f"moved {path}")[-1]
        check(said.startswith(f"end invalid {path}: "), f"the answer is {said!r}")
        equal((one.state(), told(one, "snapshot")), ("paused", where), "the state, and where")
    cudaw_ok("resume", one.pid)
    finish(one)
    finish(two)


main(requesters_of_a_pending_snapshot_that_hang_up, a_regain_while_a_snapshot_is_pending,
     a_resume_takes_over_from_one_that_is_stuck, a_first_holder_no_longer_undoes_a_resume,
     a_pause_takes_over_from_one_that_is_stuck, a_resume_ends_the_questions_of_a_pause,
     requests_that_wait_are_taken_in_order,
     lines_that_are_none, descriptors_that_come_with_a_request, silent_clients_make_room,
     one_is_turned_away_where_all_wait, unsanitized(operations_that_get_no_thread),
     unsanitized(a_control_thread_that_comes_late),
     unsanitized(a_program_that_closes_what_is_not_its_own),
     unsanitized(a_program_that_has_the_numbers_of_ours),
     unsanitized(a_program_without_standard_streams),
     a_directory_that_is_another_snapshots)
