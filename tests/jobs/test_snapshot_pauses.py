#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Pauses that others ask for before and during a snapshot: they hold after it, and only they. And
commands that are killed while a job is paused for them. CRIU is a pretended one throughout.
"""
import contextlib
import ctypes
import fcntl
import json
import os
import resource
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

from simlib import HELD, MIB, SCRATCH, held_back, hold, is_stopped, let_go
from detached import Detached
from gpulib import (BUILD, CUDAW, PATIENCE, RUNTIME_DIR, base_environment, check, cudaw, cudaw_ok, equal,
                    hog, is_pending, main, until)
from restorelib import (IMAGE, VERSION, Counting, Snapshot, commit_held, directory, nobody_writes_there, pretended_criu,
                        refused)
from snapshotjobs import ask, contents, counter, finish, no_host_memory, told

os.environ["CUDAW_LOG"] = "warn"
BUSY = "end busy another snapshot is under way, or being read back"
os.environ.update(HELD)


def pause(job, by, *options):
    """@options are the command's."""
    if by == "signal":
        os.kill(job.pid, signal.SIGUSR1)
        until(lambda: not is_pending(job.pid, signal.SIGUSR1), 10, "SIGUSR1 is handled")
        ask(job, "status")      # a signal that a thread has taken is heard of before that
    else:
        cudaw_ok("pause", *options, job.pid)


def goes_on(job):
    equal(job.state(), "running", "the state")
    job.wait_steps(job.steps() + 3)


def resumes_well(job):
    """What it ends with shows whether it had its memory."""
    cudaw_ok("resume", job.pid)
    goes_on(job)
    job.finish()


def a_pause_while_criu_works_holds():
    for by in ("command", "signal"):
        job = Counting()
        snapshot = Snapshot(job, "--json").in_criu()
        pause(job, by)
        snapshot.let_criu_go()
        said = json.loads(snapshot.end())
        equal((said["paused"], said["resume"]), (True, []), f"what is said after a {by}")
        equal((job.state(), told(job, "snapshot")), ("paused", snapshot.path), "the state, and where")
        nobody_writes_there(snapshot.path)
        resumes_well(job)


def without_one_the_job_goes_on():
    """Also where a pause was taken back, which has to wait for the snapshot."""
    job = Counting()
    for before, requests in [((), ()), ((), ("pause", "resume")), (("pause",), ("resume",))]:
        for request in before:
            cudaw_ok(request, job.pid)
        snapshot = Snapshot(job, "--json").in_criu()
        for request in requests:
            done = cudaw(request, job.pid)
            equal(done.returncode, int(request == "resume"), f"the exit code ({done.stderr.strip()})")
            equal(job.state(), "paused", "the state")
        check(not requests or "another process reads or writes" in done.stderr, "the reason")
        snapshot.let_criu_go()
        said = json.loads(snapshot.end())
        equal((said["paused"], bool(said["resume"])), (False, True), "what is said")
        goes_on(job)
    job.finish()


def a_pause_before_it_holds():
    job = Counting()
    cudaw_ok("pause", job.pid)
    snapshot = Snapshot(job).in_criu()
    snapshot.let_criu_go()
    check("; it stays paused" in snapshot.end(), "it is not said")
    equal(job.state(), "paused", "the state")
    nobody_writes_there(snapshot.path)
    resumes_well(job)


def a_pause_holds_where_criu_fails():
    job = Counting()
    snapshot = Snapshot(job).in_criu()
    cudaw_ok("pause", job.pid)
    snapshot.let_criu_go(1)
    said = snapshot.end(1)
    check(f"{job.pid} stays paused; {snapshot.path} holds its memory" in said, said)
    equal(job.state(), "paused", "the state")
    nobody_writes_there(snapshot.path)
    resumes_well(job)


def a_pause_under_way_holds():
    """One that others have asked for, and not a pause of the snapshot's own."""
    job = counter()
    hold("out")
    cudaw_ok("pause", "--no-wait", job.pid)
    equal(job.state(), "pausing", "the state")
    snapshot = Snapshot(job, "--gpu-only")
    time.sleep(0.2)     # so that it is most likely there before the pause is done
    let_go("out")
    check("; it stays paused" in snapshot.end(), "it is not said")
    equal(job.state(), "paused", "the state")
    job.resume()
    finish(job)


def a_pause_while_it_is_written_holds():
    for by in ("command", "signal"):
        job = counter()
        hold("out")
        snapshot = Snapshot(job, "--gpu-only")
        job.wait_state("pausing")
        pause(job, by, "--no-wait")
        let_go("out")
        check("; it stays paused" in snapshot.end(), "it is not said")
        equal(job.state(), "paused", "the state")
        cudaw_ok("verify", snapshot.path)
        job.resume()
        finish(job)


def a_pause_holds_where_the_disk_is_full():
    """The snapshot's pause is undone, and the other one done."""
    for by in ("command", "signal"):
        job = counter()
        hold("out")
        resource.prlimit(job.pid, resource.RLIMIT_FSIZE, (4 * MIB, resource.RLIM_INFINITY))
        snapshot = Snapshot(job, "--gpu-only")
        job.wait_state("pausing")
        pause(job, by, "--no-wait")
        let_go("out")
        check("File too large" in snapshot.end(1), "the reason is not told")
        job.wait_state("paused")
        job.check_still()
        resource.prlimit(job.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        job.resume()
        finish(job)


def a_pause_while_it_resumes_holds():
    job = counter()
    hold("in")
    snapshot = Snapshot(job, "--gpu-only")
    job.wait_state("resuming")
    cudaw_ok("pause", "--no-wait", job.pid)
    let_go("in")
    check("; it stays paused" in snapshot.end(), "it is not said")
    equal(job.state(), "paused", "the state")
    job.resume()
    finish(job)


@contextlib.contextmanager
def a_path_in_memory():
    """A job that runs on reads the snapshot that is there."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as parent:
        yield f"{parent}/snapshot"


def waiting_for_memory(*options, path=None):
    """A job after a whole snapshot, which the command waits for, and who has its memory."""
    os.environ["CUDAW_SIM_SHARED"] = os.path.join(SCRATCH, "gpu")
    job = Counting()
    snapshot = Snapshot(job, *options, path=path).in_criu()
    other, _ = hog()
    os.environ.pop("CUDAW_SIM_SHARED")
    snapshot.let_criu_go()
    until(lambda: job.state() == "waiting", 10, "it waits")
    return job, snapshot, other


def a_pause_while_it_waits_for_memory_holds():
    job, snapshot, other = waiting_for_memory()
    cudaw_ok("pause", job.pid)
    check(snapshot.end().endswith("; it stays paused\n"), "it is not said, or that its memory is in the snapshot")
    equal((job.state(), told(job, "snapshot")), ("paused", None), "the state, and where")
    other.discard()
    resumes_well(job)


@contextlib.contextmanager
def waiting_for_host_memory(path):
    """A job after a whole snapshot, which the command waits for; there is host memory afterwards."""
    job = Counting()
    snapshot = Snapshot(job, path=path).in_criu()
    with no_host_memory():
        snapshot.let_criu_go()
        until(lambda: job.state() == "waiting", 10, "it waits")
        yield job, snapshot


def a_job_waits_for_the_host_memory_that_it_gave_for_it():
    """Nobody has asked for a pause, so the job runs on by itself."""
    with a_path_in_memory() as path:
        with waiting_for_host_memory(path) as (job, snapshot):
            pass
        snapshot.end()
        goes_on(job)
        job.finish()


def a_pause_while_it_waits_for_host_memory_holds():
    with a_path_in_memory() as path:
        with waiting_for_host_memory(path) as (job, snapshot):
            cudaw_ok("pause", job.pid)
            check("; it stays paused" in snapshot.end(), "it is not said")
            equal((job.state(), told(job, "snapshot")), ("paused", path), "the state, and where")
        nobody_writes_there(path)
        resumes_well(job)


def the_command_can_be_ended_while_the_job_waits_for_memory():
    """The snapshot is whole by then, and the memory no longer in it alone."""
    job, snapshot, other = waiting_for_memory()
    snapshot.process.terminate()
    snapshot.end(-signal.SIGTERM)
    other.discard()
    until(lambda: job.state() == "running", 10, "it runs on")
    cudaw_ok("verify", snapshot.path)
    job.finish()


def listener_for(job):
    """In the place of the job's socket, which is kept under another name if it is there."""
    path = os.path.join(RUNTIME_DIR, f"{job.pid}.sock")
    if os.path.exists(path):
        os.rename(path, path + ".kept")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    return listener, path


def as_it_ends(job):
    """A job that is gone is as one whose last threads end in a second: it answers nothing until then."""
    listener, _ = listener_for(job)
    threading.Timer(1, listener.close).start()


def a_job_keeps_its_directory_without_a_lock():
    """Whoever is to add the image is not there yet, or not any more. It keeps it until it is gone."""
    job, other, path = Counting(), Counting(), directory()
    equal(ask(job, f"snapshot pause hold image none {path}")[-1], "end ok", "the answer")
    before = contents(path)
    check("in-use" in before, f"the directory has {before}")
    said = ask(other, f"snapshot pause none {path}")[-1]
    check(f"{job.pid} may have its memory in it; 'cudaw resume {job.pid}' first" in said, said)
    equal((other.state(), contents(path)), ("running", before), "the other, and the directory")
    copy = directory()
    shutil.copytree(path, copy)
    cudaw_ok("snapshot", "--gpu-only", other.pid, copy)     # a copy is nobody's
    equal(ask(job, f"done {path}")[-1], "end ok", "the answer")
    until(lambda: job.state() == "running", 10, "it runs on")
    check("in-use" not in contents(path), f"the directory has {contents(path)}")
    cudaw_ok("snapshot", "--gpu-only", other.pid, path)
    equal(ask(job, f"snapshot pause hold image none {path}")[-1], "end ok", "the answer")
    os.kill(job.pid, signal.SIGKILL)
    until(job.is_gone, 10, "it is gone")
    as_it_ends(job)
    cudaw_ok("snapshot", "--gpu-only", other.pid, path)
    check("in-use" not in contents(path), f"the directory has {contents(path)}")
    cudaw_ok("verify", path)
    other.finish()


def taken_for(job, *args):
    """Run the command; whoever listens is the job for it."""
    env = {"LD_PRELOAD": os.path.join(BUILD, "tests", "preload", "peercred.so"),
           "ASAN_OPTIONS": "verify_asan_link_order=0", "TEST_PEER": str(job.pid)}
    return subprocess.run([CUDAW, *args], env={**base_environment(), **env}, timeout=300, text=True,
                          capture_output=True, check=False)


@contextlib.contextmanager
def as_it_was(job):
    """It answers as before its snapshot was written, to a command that asked just then."""
    lines = [line for line in ask(job, "status") if not line.startswith(("snapshot ", "state "))]
    answers = {"status": "\n".join(["state running", *lines, ""]),
               "snapshot": BUSY + "\n"}
    listener, path = listener_for(job)

    def serve():
        while True:
            with listener.accept()[0] as client:
                if request := client.recv(4096):    # else it wanted to know who listens
                    client.sendall(answers[request.decode().split()[0]].encode())

    threading.Thread(target=serve, daemon=True).start()
    yield
    os.rename(path + ".kept", path)


def another_command_for_it_leaves_its_memory_alone():
    job, path = Counting(), directory()
    equal(ask(job, f"snapshot pause hold image none {path}")[-1], "end ok", "the answer")
    before = contents(path)
    with as_it_was(job):
        said = taken_for(job, "snapshot", "--gpu-only", str(job.pid), path)
        equal((said.returncode, "another snapshot is under way" in said.stderr), (1, True), said.stderr)
    equal(contents(path), before, "what the directory has")
    resumes_well(job)


def a_stopped_job_keeps_its_directory():
    """As one that CRIU had stopped when the command was killed: nothing of it holds a lock."""
    job, other, path = Counting(), Counting(), directory()
    equal(ask(job, f"snapshot pause hold image none {path}")[-1], "end ok", "the answer")
    os.kill(job.pid, signal.SIGSTOP)
    until(lambda: is_stopped(job.pid), 10, "the job is stopped")
    before = contents(path)
    said = ask(other, f"snapshot pause none {path}")[-1]
    check(f"{job.pid}, which is stopped, may have its memory in it" in said, said)
    equal((other.state(), contents(path)), ("running", before), "the other, and the directory")
    os.kill(job.pid, signal.SIGCONT)
    equal(told(job, "snapshot"), path, "where its memory is")
    resumes_well(job)
    cudaw_ok("snapshot", "--gpu-only", other.pid, path)
    other.finish()


def an_incremental_one_goes_on_from_the_last_that_is_there():
    """Not from one that CRIU had failed to end, which has left nothing."""
    job, path = Detached("counter", "--mib", 32, "--step-ms", 1000000), directory()
    job.wait_steps(1)
    cudaw_ok("snapshot", "--gpu-only", job.pid, path)
    for _ in range(3):
        for options in ((), ("--incremental",)):
            snapshot = Snapshot(job, *options, path=path).in_criu()
            snapshot.let_criu_go(1)
            snapshot.end(1)
        said = json.loads(cudaw_ok("snapshot", "--gpu-only", "--incremental", "--json", job.pid, path))
        equal(said["totals"]["written"], 0, "bytes written")
    cudaw_ok("verify", path)
    os.kill(job.pid, signal.SIGKILL)


# It fails so many TIMES, with a connection open to the process, and leaves a file.
MET_A_CONNECTION = """
[ "$1" = --version ] && { echo Version: 4.2; exit; }
images=$3
ls $images > "$0.found"
""" + IMAGE + """
echo once more >> "$0.tried"
cat /proc/$pid/task/*/status | awk '/ctxt_switches/ { n += $2 } END { print n }' >> "$0.runs"
[ $(wc -l < "$0.tried") -gt TIMES ] && exit 0
: > $images/core-1.img
echo "(00.01) Error (criu/sk-unix.c:874): FAILURE" > $work/criu.log
exit 1
"""


def a_connection_when_criu_begins_is_no_harm():
    """As of cudaw ps. A job that was stopped runs in between, to answer; but no more than four times."""
    for options, failure, times, code in (((), "External socket is used. Consider --ext", 5, 0),
                                          (("--stop",), "Found a closed in-flight socket to 0x1", 4, 0),
                                          (("--stop",), "Found a closed in-flight socket to 0x1", 5, 1)):
        job = Counting()
        criu = pretended_criu(MET_A_CONNECTION.replace("FAILURE", failure).replace("TIMES", str(times)))
        before = set(os.listdir(SCRATCH))
        done = subprocess.run([CUDAW, "snapshot", *options, str(job.pid), directory()], check=False, text=True,
                              capture_output=True, env={**base_environment(), **criu}, timeout=100 * PATIENCE)
        equal(done.returncode, code, f"the exit code ({done.stderr.strip()})")
        for name, wanted in (("tried", "once more\n" * (times + (code == 0))), ("found", "")):
            with open(f"{criu['CUDAW_CRIU']}.{name}", encoding="ascii") as file:
                equal(file.read(), wanted, f"what was {name}")
        check(not [name for name in set(os.listdir(SCRATCH)) - before if "criu" in name],
              "a directory of CRIU's stays")
        if options:
            equal(job.is_gone(), code == 0, "whether the job has ended")
            with open(f"{criu['CUDAW_CRIU']}.runs", encoding="ascii") as file:
                runs = [int(line) for line in file]
            check(len(runs) == 5 and all(a < b for a, b in zip(runs, runs[1:])), f"it ran {runs} times")
        if not job.is_gone():
            goes_on(job)
            job.finish()


def a_resume_that_fails_leaves_the_directory_locked():
    with a_path_in_memory() as path:
        job = Counting()
        snapshot = Snapshot(job, path=path).in_criu()
        data = os.path.join(path, next(n for n in contents(path) if n[:4] == "data"))
        shutil.copy(data, data + ".good")
        with open(data, "r+b") as file:
            file.seek(4096)
            file.write(b"damage")
        snapshot.let_criu_go()
        check("damaged at" in snapshot.end(1), "the reason is not told")
        equal(job.state(), "failed", "the state")
        os.rename(data + ".good", data)
        nobody_writes_there(path)
        resumes_well(job)


def one_after_a_long_resume():
    """As after the longest: it read a snapshot, and waited for memory."""
    with a_path_in_memory() as path:
        job, snapshot, other = waiting_for_memory("--json", path=path)
        other.discard()
        check(len(json.loads(snapshot.end())["resume"]) >= 5, "the resume was a short one")
        again = Snapshot(job).in_criu()
        again.let_criu_go()
        again.end()
        goes_on(job)
        job.finish()


def has_memory_file(pid):
    """One of the command's, open or mapped."""
    name = "memfd:cudaw-snapshot"
    with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as file:
        return name in file.read() or any(name in os.readlink(f"/proc/{pid}/fd/{fd}")
                                          for fd in os.listdir(f"/proc/{pid}/fd"))


def what_was_saved_comes_back_without_a_read():
    """The command has it while CRIU works, unless the directory is in memory."""
    with a_path_in_memory() as in_memory:
        for path, reads in ((directory(), []), (in_memory, ["read"])):
            job = Counting()
            snapshot = Snapshot(job, "--json", path=path).in_criu()
            equal([has_memory_file(pid) for pid in (job.pid, snapshot.process.pid)], [False, not reads],
                  "who has a memory file")
            snapshot.let_criu_go()
            resume = [phase["name"] for phase in json.loads(snapshot.end())["resume"]]
            equal([name for name in resume if name != "restore"], [*reads, "map", "copy"], "the resume")
            cudaw_ok("verify", path)
            pause(job, "command")       # what it has got back goes out again
            resumes_well(job)


def a_failure_gives_back_what_was_saved():
    job = Counting()
    snapshot = Snapshot(job).in_criu()
    for name in contents(snapshot.path):
        if name.startswith("data-"):
            os.truncate(f"{snapshot.path}/{name}", 0)
    snapshot.let_criu_go(1)
    check("CRIU" in snapshot.end(1), "the reason is not told")
    equal(contents(snapshot.path), [], "what is in the directory")
    until(lambda: not has_memory_file(job.pid), 30, "it has the memory file no more")
    goes_on(job)
    job.finish()


def one_that_stops_the_job():
    """It has no resume, not even an earlier one; nor waits it for the parent to wait for the job."""
    unnamed = []
    for _ in range(3):
        job = Counting()
        cudaw_ok("pause", job.pid)
        cudaw_ok("resume", job.pid)
        snapshot = Snapshot(job, "--stop", "--json").in_criu()
        os.kill(job.pid, signal.SIGSTOP)
        snapshot.let_criu_go()
        said = json.loads(snapshot.end())
        equal((said["stopped"], said["resume"]), (True, []), "what is said")
        check(job.is_gone(), "the job is still there")
        unnamed.append(said["ms"] - sum(phase["ms"] for phase in said["phases"]))
    check(min(unnamed) < 2500, f"{unnamed} ms are of no phase")


def one_that_ends_as_it_runs_on():
    """Its snapshot is whole, and it stayed not paused."""
    job = Detached("ends", "--steps", 1000000, "--step-ms", 10)
    job.wait_steps(3)
    snapshot = Snapshot(job).in_criu()
    snapshot.let_criu_go()
    said = snapshot.end()
    check(said.startswith(f"{job.pid} is in ") and said.endswith(" of 1 process\n"), said)
    cudaw_ok("verify", snapshot.path)
    job.wait_end(30)


@contextlib.contextmanager
def opening(path):
    """Gives what waits until somebody opens it."""
    libc, in_open = ctypes.CDLL(None), 0x20
    fd = libc.inotify_init()
    check(libc.inotify_add_watch(fd, path.encode(), in_open) > 0, "inotify(7)")

    def opened():
        until(lambda: select.select([fd], [], [], 0)[0], 30, "it is opened")
        os.read(fd, 4096)
    yield opened
    os.close(fd)


def locks(fd):
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False


def one_who_reads_in_the_gap_is_waited_for():
    """Between the job's writing and CRIU nobody has the directory's lock."""
    job = Counting()
    hold("out")
    snapshot = Snapshot(job)
    until(lambda: job.state() == "pausing", 30, "it begins")
    snapshot.process.send_signal(signal.SIGSTOP)
    let_go("out")
    until(lambda: job.state() == "paused", 30, "it is written")
    reader = os.open(snapshot.path, os.O_RDONLY)
    until(lambda: locks(reader), 30, "the job has unlocked it")
    with opening(snapshot.path) as opened:
        snapshot.process.send_signal(signal.SIGCONT)
        opened()
        opened()    # the first time in vain
    os.close(reader)
    snapshot.in_criu().let_criu_go()
    snapshot.end()
    cudaw_ok("verify", snapshot.path)
    goes_on(job)
    job.finish()


def one_who_waits_for_its_end_is_waited_for():
    """As a backup may, who then has the lock before the job."""
    job = Counting()
    snapshot = Snapshot(job).in_criu()
    reader = os.open(snapshot.path, os.O_RDONLY)
    waits = threading.Thread(target=fcntl.flock, args=(reader, fcntl.LOCK_EX))
    waits.start()
    snapshot.let_criu_go()
    waits.join()
    time.sleep(0.5)
    os.close(reader)
    snapshot.end()
    goes_on(job)
    job.finish()


def one_who_locks_it_before_the_command_ends_is_no_harm():
    """The snapshot is complete, and the job has read its memory back."""
    job = Counting()
    snapshot = Snapshot(job).in_criu()
    hold("in")
    snapshot.let_criu_go()
    until(lambda: held_back("in") == {job.pid}, 30, "its memory goes back to the GPU")
    reader = os.open(snapshot.path, os.O_RDONLY)
    fcntl.flock(reader, fcntl.LOCK_EX)
    let_go("in")
    snapshot.end()
    os.close(reader)
    cudaw_ok("verify", snapshot.path)
    goes_on(job)
    job.finish()


def one_that_is_continued_runs_on():
    """It would do again, when it is restored, what it does before it is ended."""
    job = Counting()
    snapshot = Snapshot(job, "--stop").in_criu()
    os.kill(job.pid, signal.SIGCONT)
    snapshot.let_criu_go()
    check(f"snapshot {job.pid}: it was continued meanwhile" in snapshot.end(1), "it says not why")
    equal(contents(snapshot.path), [], "what is in the directory")
    goes_on(job)
    job.finish()


# The job is stopped when it ends, as by the real one, which fails if it is killed then.
STOPS = VERSION + """
for i; do [ "$before" = --tree ] && kill -STOP $i; before=$i; done
"""


def one_that_is_continued_at_the_commit_runs_on():
    """The snapshot is valid, but the job has gone on from there."""
    job, path = Counting(), directory()
    env = {"LD_PRELOAD": os.path.join(BUILD, "tests", "preload", "continues.so"),
           "ASAN_OPTIONS": "verify_asan_link_order=0", "TEST_CONTINUES": str(job.pid),
           **pretended_criu(STOPS + IMAGE)}
    said = refused("snapshot", "--stop", job.pid, path, env=env)
    check(f"snapshot {job.pid}: it was continued meanwhile" in said, said)
    cudaw_ok("verify", path)
    goes_on(job)
    job.finish()


def a_job_goes_on_before_the_commit():
    """Its memory is in the command's file: it waits for no disk. An interrupt does not end what is half done."""
    job = Counting()
    with commit_held(job) as snapshot:
        equal(job.state(), "paused", "the state while CRIU works")
        snapshot.let_criu_go()
        until(lambda: job.state() == "running", 30, "it goes on")
        goes_on(job)
        snapshot.process.send_signal(signal.SIGINT)
        cudaw_ok("pause", job.pid)      # as any other: the snapshot has let it go
    snapshot.end(-signal.SIGINT)
    equal(job.state(), "paused", "the state")
    cudaw_ok("verify", snapshot.path)
    resumes_well(job)


def a_commit_that_fails_is_no_harm():
    """A job that is to stay paused has its memory there alone, and stays."""
    job = Counting()
    with commit_held(job, fails="yes") as snapshot:
        snapshot.let_criu_go()
        until(lambda: job.state() == "running", 30, "it goes on")
    check("Input/output error" in snapshot.end(1), "the reason is not told")
    equal(contents(snapshot.path), [], "what is left in the directory")
    goes_on(job)
    ends = Counting()
    with commit_held(ends, fails="yes") as snapshot:
        snapshot.let_criu_go()
        until(lambda: ends.state() == "running", 30, "it goes on")
        os.kill(ends.pid, signal.SIGKILL)
        ends.wait_end()
    check("Input/output error" in snapshot.end(1), "the reason is that of the disk")
    with commit_held(job, fails="yes") as snapshot:
        pause(job, "command")
        snapshot.let_criu_go()
    check(f"{job.pid} stays paused; {snapshot.path} holds its memory" in snapshot.end(1), "it is not said")
    resumes_well(job)


def one_that_criu_leaves_stopped_runs_on():
    for criu, why in ((STOPS + "exit 1", "CRIU: it failed"), (STOPS, "CRIU succeeded, but wrote no core-")):
        job, path = Counting(), directory()
        said = refused("snapshot", "--stop", job.pid, path, env=pretended_criu(criu))
        check(why in said, said)
        equal(contents(path), [], "what is in the directory")
        goes_on(job)
        job.finish()


def a_program_that_is_replaced_meanwhile_fails_it():
    """The image would be of the new program, and the GPU memory of the old one."""
    for itself, options in ((0, ()), (0, ("--stop",)), (1, ("--stop",))):
        job = Detached("execs", "--itself", itself, "--steps", 1000000, "--step-ms", 10)
        job.wait_steps(3)
        snapshot = Snapshot(job, *options).in_criu()
        os.kill(job.pid, signal.SIGCONT)
        os.kill(job.pid, signal.SIGWINCH)
        until(lambda: job.command_line() == "sleep\0" "1000\0", 10, "another program runs")
        if options:
            os.kill(job.pid, signal.SIGSTOP)    # as it was
        snapshot.let_criu_go()
        said = snapshot.end(1)
        check("manifest.json" not in contents(snapshot.path), f"the snapshot was committed: {said}")
        check("it has started another program meanwhile" in said, said)
        os.kill(job.pid, signal.SIGKILL)


def an_image_is_made_where_the_memory_is():
    """Also where the directory's path has become another's."""
    for _ in range(3):
        job, path = Counting(), directory()
        other = os.path.join(os.path.dirname(path), "other")
        os.makedirs(f"{other}/host-1")
        snapshot = Snapshot(job, path=path)
        snapshot.let_criu_go()
        while not os.path.exists(f"{path}/host-1") and snapshot.process.poll() is None:
            pass
        os.rename(path, path + ".was")
        os.rename(other, path)
        snapshot.process.communicate(timeout=300)
        equal(contents(f"{path}/host-1"), [], "what was made in another directory")
        os.rename(path, other)
        os.rename(path + ".was", path)
        cudaw_ok("resume", job.pid)
        goes_on(job)
        job.finish()


def a_signal_to_end_waits_for_it():
    """The program handles it, and may need the GPU for that."""
    job = Detached("interrupts", "--steps", 1000000, "--step-ms", 10)
    job.wait_steps(3)
    snapshot = Snapshot(job).in_criu()
    os.kill(job.pid, signal.SIGTERM)
    until(lambda: "another process" in (told(job, "reason") or ""), 10, "a resume was tried")
    os.kill(job.pid, signal.SIGINT)
    snapshot.let_criu_go()
    check("every byte right" in job.wait_end(30)[-1], "the job did not verify its memory")
    snapshot.process.communicate(timeout=300)    # it may not have heard of the resume


def a_resume_before_criu_begins_calls_it_off():
    """While the command sleeps the job goes on; what is in its directory is no image of it any more."""
    job = Counting()
    hold("out")
    with_criu = Snapshot(job)
    until(lambda: job.state() != "running", 10, "it begins")
    os.kill(with_criu.process.pid, signal.SIGSTOP)
    let_go("out")
    until(lambda: told(job, "snapshot"), 10, "it is written")
    cudaw_ok("resume", job.pid)
    os.kill(with_criu.process.pid, signal.SIGCONT)
    with_criu.let_criu_go()
    check("it was resumed meanwhile" in with_criu.end(1), "the reason is not told")
    equal(contents(with_criu.path), [], "what is left in the directory")
    goes_on(job)
    job.finish()


def a_resume_under_way_goes_on_after_it():
    job = counter()
    job.pause()
    hold("in")
    cudaw_ok("resume", "--no-wait", job.pid)
    equal(job.state(), "resuming", "the state")
    snapshot = Snapshot(job, "--gpu-only")
    time.sleep(0.2)     # it waits for the resume, most likely
    let_go("in")
    check("stays paused" not in snapshot.end(), "it is said to stay paused")
    equal(job.state(), "running", "the state")
    finish(job)


def another_one_waits_for_its_end():
    job = Counting()
    snapshot = Snapshot(job).in_criu()
    other = directory()
    for request in (f"snapshot pause {other}", f"snapshot {other}"):
        equal(ask(job, request)[-1], BUSY, "the answer")
    equal(ask(job, f"done {other}"), ["state paused", "end ok"], "the answer to another's end")
    check(not os.path.exists(other), "the directory was made")
    snapshot.let_criu_go()
    snapshot.end()
    goes_on(job)
    cudaw_ok("snapshot", "--gpu-only", job.pid, other)
    job.finish()


def ends_that_make_no_sense():
    job = counter(16)
    for request in ("done", "done here"):
        check(ask(job, request)[-1].startswith("end invalid "), f"the answer to {request}")
    equal(ask(job, "done /nowhere")[::2], ["state running", "end ok"], "the answer")
    job.pause()
    equal(ask(job, "done /nowhere"), ["state paused", "end ok"], "the answer")
    job.resume()
    finish(job)


def killed(snapshot, gone=True):
    os.kill(snapshot.process.pid, signal.SIGKILL)
    if gone:    # else it is a zombie, which has ended, too
        snapshot.process.wait()


def logged(job, text):
    until(lambda: any(text in line for line in job.lines()), 10, f"the log says: {text}")


def the_job_goes_on_when_the_command_is_killed():
    path = directory()
    job = Counting()
    cudaw_ok("snapshot", "--gpu-only", job.pid, path)
    for gone in (False, True):
        snapshot = Snapshot(job, path=path).in_criu()
        killed(snapshot, gone)
        until(lambda: job.state() == "running", 10, "it runs on by itself")
        logged(job, f"process {snapshot.process.pid}, which was to finish a snapshot, has ended: the job runs on")
        snapshot.let_criu_go()
        snapshot.end(-signal.SIGKILL)
        goes_on(job)
        cudaw_ok("verify", path)
    cudaw_ok("snapshot", "--gpu-only", job.pid, path)
    check(not any(name.startswith(("host-", "manifest.new")) for name in contents(path)),
          f"the directory has {contents(path)}")
    job.finish()


def a_paused_job_stays_so_when_the_command_is_killed():
    for before in (True, False):
        job = Counting()
        if before:
            cudaw_ok("pause", job.pid)
        snapshot = Snapshot(job).in_criu()
        if not before:
            cudaw_ok("pause", job.pid)
        killed(snapshot)
        logged(job, f"process {snapshot.process.pid}, which was to finish a snapshot, has ended: the job stays")
        nobody_writes_there(snapshot.path)
        equal((job.state(), told(job, "snapshot")), ("paused", snapshot.path), "the state, and where")
        snapshot.let_criu_go()
        snapshot.end(-signal.SIGKILL)
        resumes_well(job)


def what_a_killed_command_asked_for_is_seen_through():
    job = counter()
    hold("out")
    snapshot = Snapshot(job, "--gpu-only")
    job.wait_state("pausing")
    killed(snapshot)
    snapshot.end(-signal.SIGKILL)
    let_go("out")
    job.wait_state("running")
    cudaw_ok("verify", snapshot.path)
    finish(job)


def a_command_that_is_ended_while_it_is_written_calls_it_off():
    """As nobody would add the image; but not a pause that others have asked for meanwhile."""
    job, path = Counting(), directory()
    cudaw_ok("snapshot", "--gpu-only", job.pid, path)
    before = contents(path)
    goes_on(job)    # a step: without one there is nothing to copy
    for paused in (False, True):
        hold("out")
        snapshot = Snapshot(job, path=path)
        until(lambda: job.state() == "pausing", 10, "it is being paused")
        if paused:
            cudaw_ok("pause", "--no-wait", job.pid)
        snapshot.process.terminate()
        snapshot.end(-signal.SIGTERM)
        job.state()     # what answers this has heard of that
        let_go("out")
        if not paused:
            until(lambda: job.state() == "running", 10, "it runs on")
            goes_on(job)
            equal(contents(path), before, "what the directory has")
            logged(job, "snapshot: cancelled")
            continue
        logged(job, f"process {snapshot.process.pid}, which was to finish a snapshot, has ended: the job stays")
        equal(job.state(), "paused", "the state")
        resumes_well(job)


if __name__ == "__main__":
    main(a_pause_while_criu_works_holds, without_one_the_job_goes_on, a_pause_before_it_holds,
         a_pause_holds_where_criu_fails, a_pause_under_way_holds, a_pause_while_it_is_written_holds,
         a_pause_holds_where_the_disk_is_full, a_pause_while_it_resumes_holds,
         a_pause_while_it_waits_for_memory_holds,
         a_job_waits_for_the_host_memory_that_it_gave_for_it,
         a_pause_while_it_waits_for_host_memory_holds,
         the_command_can_be_ended_while_the_job_waits_for_memory,
         a_job_keeps_its_directory_without_a_lock,
         another_command_for_it_leaves_its_memory_alone, a_stopped_job_keeps_its_directory,
         an_incremental_one_goes_on_from_the_last_that_is_there,
         a_connection_when_criu_begins_is_no_harm, a_resume_that_fails_leaves_the_directory_locked,
         one_after_a_long_resume, what_was_saved_comes_back_without_a_read,
         a_failure_gives_back_what_was_saved, one_that_stops_the_job, one_that_ends_as_it_runs_on,
         one_who_reads_in_the_gap_is_waited_for, one_who_waits_for_its_end_is_waited_for,
         one_who_locks_it_before_the_command_ends_is_no_harm, one_that_is_continued_runs_on,
         one_that_is_continued_at_the_commit_runs_on, a_job_goes_on_before_the_commit,
         a_commit_that_fails_is_no_harm, one_that_criu_leaves_stopped_runs_on,
         a_program_that_is_replaced_meanwhile_fails_it, an_image_is_made_where_the_memory_is,
         a_signal_to_end_waits_for_it,
         a_resume_before_criu_begins_calls_it_off,
         a_resume_under_way_goes_on_after_it, another_one_waits_for_its_end,
         ends_that_make_no_sense,
         the_job_goes_on_when_the_command_is_killed,
         a_paused_job_stays_so_when_the_command_is_killed,
         what_a_killed_command_asked_for_is_seen_through,
         a_command_that_is_ended_while_it_is_written_calls_it_off)
