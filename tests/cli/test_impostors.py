#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The name of a socket is a claim: sockets that are named after other processes, jobs of other PID
namespaces, and directories with more in them than can be talked to."""
import ctypes
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import threading
import time

from clilib import (CUDAW, LIMIT_S, Directory, FakeJob, Result, Skip, alone, contains, cudaw, equal,
                    installed_copy, live_pid, main, needs_to_be_alone, scratch, silent, state, status,
                    stop)

ALICE, BOB = 2147000001, 2147000002     # users of nobody
libc = ctypes.CDLL(None, use_errno=True)
CLONE_NEWPID = 0x20000000
PR_SET_PDEATHSIG = 1


def needs_root():
    if os.getuid() != 0:
        raise Skip("needs root")


class Machine:
    """A /tmp of its own for the command, with directories of several users."""

    def __init__(self):
        needs_to_be_alone(root=True)
        self.tmp = scratch()
        installed_copy(f"{self.tmp}/installed", faces=False)

    def directory(self, uid):
        directory = Directory()
        del os.environ["CUDAW_RUNTIME_DIR"]
        directory.path = shutil.move(directory.path, f"{self.tmp}/cudaw-{uid}")
        os.chown(directory.path, uid, uid)
        return directory

    def cudaw(self, *args, descriptors=256):
        """As root, who sees all users' directories; with so many descriptors."""
        script = ('mount --bind "$0" /tmp && ulimit -n "$1" && shift && '
                  'exec /tmp/installed/bin/cudaw "$@"')
        done = subprocess.run(["unshare", "-m", "sh", "-c", script, self.tmp, str(descriptors), *args],
                              text=True, timeout=LIMIT_S, stdin=subprocess.DEVNULL,
                              capture_output=True, check=False)
        if "mount" in done.stderr:
            raise Skip("no mount namespace can be made")
        return Result(done)


def left_out(path, pid):
    return (f"cudaw: {path}: 1 socket is ignored, as {pid}.sock: the process that listens has another "
            "PID, or is not the directory owner's\n")


def test_a_socket_named_after_another_process():
    directory = Directory()
    victim = live_pid()
    impostor = FakeJob(directory, claims=victim, name="train")
    result = cudaw("ps", "--json")
    equal((json.loads(result.out), result.err), ([], left_out(directory.path, victim)))
    for target in (str(victim), str(impostor.pid), "abc123", "train"):
        result = cudaw("pause", target)
        equal((target, result.code, result.out), (target, 3, ""))
    equal(cudaw("pause", "--all").err, left_out(directory.path, victim) + "cudaw: there are no jobs\n")
    result = cudaw("snapshot", "--gpu-only", str(victim), scratch() + "/new")
    equal((result.code, impostor.requests), (3, []))


def test_a_stopped_process_is_not_continued_for_a_claim():
    directory = Directory()
    victim = live_pid(CUDAW_JOB="abc123")
    stop(victim)
    FakeJob(directory, claims=victim, answers={"status": silent, "resume": silent})
    for target in ("--all", str(victim), "abc123"):
        cudaw("resume", target)
        equal((target, state(victim)), (target, "T"))


def test_a_stopped_job_is_continued():
    job = FakeJob(Directory())
    stop(job.pid)
    equal(cudaw("pause", str(job.pid)).code, 1)
    equal((state(job.pid), job.requests), ("T", []))
    equal(cudaw("resume", str(job.pid)).code, 0)
    assert state(job.pid) != "T"


def test_a_silent_impostor_spares_nobody():
    """It claims a process that was started with the ID of a job."""
    directory = Directory()
    job = FakeJob(directory)
    FakeJob(directory, claims=live_pid(CUDAW_JOB="abc123"), answers={"status": silent})
    equal(cudaw("pause", "--all").code, 0)
    equal(cudaw("pause", "abc123").code, 0)
    equal(job.requests, ["pause", "pause"])


def test_the_process_means_the_job_of_its_user():
    machine = Machine()
    theirs, mine = machine.directory(ALICE), machine.directory(BOB)
    job = FakeJob(mine, user=BOB, name="real")
    impostor = FakeJob(theirs, user=ALICE, claims=job.pid, name="false")
    result = machine.cudaw("pause", str(job.pid))
    equal((result.code, result.out), (0, f"paused {job.pid} (real)\n"))
    equal(result.err, left_out(f"/tmp/cudaw-{ALICE}", job.pid))
    equal((job.requests, impostor.requests), (["pause"], []))
    equal([row["user"] for row in json.loads(machine.cudaw("ps", "--json").out)], [str(BOB)])


def test_an_id_is_a_claim_of_its_user():
    """Whoever says the ID of another user's job is no part of it."""
    machine = Machine()
    theirs, mine = machine.directory(ALICE), machine.directory(BOB)
    deaf = FakeJob(theirs, user=ALICE, env={"CUDAW_JOB": "abc123"}, answers={"status": silent})
    job = FakeJob(mine, user=BOB)
    equal(machine.cudaw("pause", "abc123").out, f"paused {job.pid}\n")
    refuses = FakeJob(theirs, user=ALICE, answers={"pause": ["end failed no"], "hold": ["end failed no"]})
    result = machine.cudaw("pause", "--all")
    contains(result.out, f"paused {job.pid}\n")
    equal((job.requests, deaf.requests), (["pause", "pause"], []))
    equal(refuses.requests, [])    # it is of the job of the one that is deaf


def test_root_sees_the_directories_of_all_users():
    machine = Machine()
    directory = machine.directory(ALICE)
    job = FakeJob(directory, user=ALICE, name="theirs")
    equal([(row["name"], row["pid"]) for row in json.loads(machine.cudaw("ps", "--json").out)],
          [("theirs", job.pid)])
    # A directory that another user made in this one's name.
    os.chown(directory.path, BOB, BOB)
    result = machine.cudaw("ps", "--json")
    equal(json.loads(result.out), [])
    contains(result.err, f"/tmp/cudaw-{ALICE} cannot be used, and so jobs cannot be found: it belongs to "
                         "another user")


def test_a_process_of_another_user_in_a_directory():
    """As root's, which found its way there."""
    needs_root()
    directory = Directory()
    os.chown(directory.path, ALICE, ALICE)
    job = FakeJob(directory)
    equal(cudaw("pause", str(job.pid)).err.splitlines()[0] + "\n", left_out(directory.path, job.pid))
    equal(job.requests, [])
    # Root's directory is only root's to put sockets into: a job may have become another user.
    own = Directory()
    os.chmod(own.path, 0o777)
    job = FakeJob(own, user=ALICE)
    os.chmod(own.path, 0o700)
    equal(cudaw("pause", str(job.pid)).code, 0)


def apart(directory, **fields):
    """A job in a PID namespace of its own, where it is number 1."""
    needs_root()
    inner, said = os.pipe()

    def begin():
        if libc.unshare(CLONE_NEWPID):
            os._exit(1)
        if child := os.fork():
            os.write(said, f"{child}\n".encode())
            os.closerange(3, 256)
            os.waitpid(child, 0)
            os._exit(0)
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

    job = FakeJob(directory, begin=begin, **fields)
    os.close(said)
    with os.fdopen(inner, encoding="ascii") as file:
        number = file.readline()
    if not number:
        raise Skip("no PID namespace can be made")
    job.pid = int(number)
    return job


def test_jobs_of_other_pid_namespaces():
    directory = Directory()
    job = apart(directory, name="apart")
    equal([row["pid"] for row in json.loads(cudaw("ps", "--json").out)], [job.pid])
    for target in ("abc123", "apart", str(job.pid), "--all"):
        result = cudaw("pause", target)
        equal((result.code, result.out), (0, f"paused {job.pid} (apart)\n"))
    equal(job.requests, ["pause"] * 4)
    # Here its number there is another process's.
    result = cudaw("pause", "1")
    equal((result.code, result.err), (3, "cudaw: process 1 is not a cudaw job; the job that is 1 in another "
                                      f"PID namespace is {job.pid} here\n"))
    stop(job.pid)
    equal(cudaw("pause", "--all").code, 1)
    equal(cudaw("resume", str(job.pid)).code, 0)
    assert state(job.pid) != "T"


def test_jobs_that_are_not_seen():
    """From inside a container, those outside: what the socket answers is believed, and no more."""
    needs_root()
    directory = Directory()
    job = FakeJob(directory, name="outside")
    inside = ["unshare", "--pid", "--fork", "--mount-proc"]

    def run(*args):
        done = subprocess.run([*inside, CUDAW, *args], text=True, capture_output=True, check=False,
                              timeout=LIMIT_S)
        return Result(done)

    if subprocess.run([*inside, "true"], check=False).returncode:
        raise Skip("no PID namespace can be made")
    equal([row["pid"] for row in json.loads(run("ps", "--json").out)], [job.pid])
    for target in ("abc123", "outside", str(job.pid), "--all"):
        equal((target, run("pause", target).code), (target, 0))
    one = FakeJob(directory, claims=1, id="bbbbbb")
    result = run("pause", "1")
    equal((result.code, result.out), (3, ""))
    equal((job.requests, one.requests), (["pause"] * 4, []))
    stop(job.pid)
    equal(run("resume", "--no-wait", "--all").code, 0)
    equal(state(job.pid), "T")
    # With a /proc that is not of its PID namespace it is the same.
    inside.pop()
    equal(run("pause", "bbbbbb").code, 0)


def limited(descriptors, *args):
    """With so few descriptors; what it said."""
    def limit():
        resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))

    done = subprocess.run([CUDAW, *args], text=True, timeout=LIMIT_S, stdin=subprocess.DEVNULL,
                          capture_output=True, check=False, preexec_fn=limit)
    return Result(done)


def test_links_to_a_socket_are_not_jobs():
    directory = Directory()
    job = FakeJob(directory)
    for number in range(1500):
        os.link(directory.socket(job.pid), directory.socket(5000000 + number))
    result = limited(64, "ps", "--json")
    rows = [(row["pid"], row["error"]) for row in json.loads(result.out)]
    equal((len(rows), rows[0]), (1, (job.pid, None)))
    contains(result.err, ": 1500 sockets are ignored, as ")


def test_a_directory_with_100000_entries():
    directory = Directory()
    job = FakeJob(directory)
    for number in range(50000):
        os.link(directory.socket(job.pid), directory.socket(5000000 + number))
        os.mkfifo(directory.socket(6000000 + number))
    begin = time.monotonic()
    result = cudaw("pause", "--all")
    assert time.monotonic() - begin < 100, time.monotonic() - begin
    equal((result.code, result.out, job.requests), (0, f"paused {job.pid}\n", ["pause"]))


def test_more_jobs_than_descriptors():
    directory = Directory()
    jobs = [FakeJob(directory, id=f"{0xaaa000 + i:x}") for i in range(40)]
    result = limited(20, "ps", "--json")
    equal([row["error"] for row in json.loads(result.out)], [None] * 40)
    equal(limited(20, "pause", "--all").code, 0)
    equal([job.requests for job in jobs], [["pause"]] * 40)


def test_users_take_turns():
    """Those of a user who has many do not hold up another's, silent as they are."""
    machine = Machine()
    crowd, mine = machine.directory(ALICE), machine.directory(BOB)
    for _ in range(30):
        FakeJob(crowd, user=ALICE, answers={"status": silent})
    job = FakeJob(mine, user=BOB, id="bbbbbb")
    asked = []
    job.answers["status"] = lambda self, connection: (
        asked.append(time.monotonic()),
        connection.sendall("".join(line + "\n" for line in status(self.pid)).encode()))
    begin = time.monotonic()
    rows = json.loads(machine.cudaw("ps", "--json", descriptors=14).out)
    equal(sorted(str(row["error"]) for row in rows), sorted(["None"] + ["no answer"] * 30))
    took = time.monotonic() - begin
    assert asked[0] - begin < took / 2, (asked[0] - begin, took)


def test_a_silent_job_ends_no_wait_of_others():
    directory = Directory()
    deaf = FakeJob(directory, answers={"pause": silent})
    good = FakeJob(directory, id="bbbbbb")
    result = cudaw("pause", "--all")
    equal((result.code, result.out), (5, f"paused {good.pid}\n"))
    equal(result.err, f"cudaw: pause {deaf.pid}: no answer; the request may still succeed, see 'cudaw ps'\n")


def crowded(directory, **options):
    """A job that takes no more callers, and a list of those that wait."""
    class Deaf(FakeJob):
        def _serve(self):
            pass

    job = Deaf(directory, backlog=0, **options)
    callers = []
    while True:
        caller = socket.socket(socket.AF_UNIX)
        caller.setblocking(False)
        try:
            caller.connect(directory.socket(job.pid))
        except BlockingIOError:
            return job, callers
        callers.append(caller)


def test_a_job_that_takes_no_more_callers():
    directory = Directory()
    job, _ = crowded(directory)
    good = FakeJob(directory, id="bbbbbb")
    result = cudaw("pause", "--timeout", "0.5", str(job.pid), "bbbbbb")
    equal((result.code, result.out), (5, f"paused {good.pid}\n"))
    contains(result.err, f"cudaw: pause {job.pid}: too many requests wait for it already\n")
    equal(cudaw("pause", "--no-wait", str(job.pid)).code, 5)
    stop(job.pid)
    cudaw("resume", "--timeout", "0.5", str(job.pid))
    assert state(job.pid) != "T"


def test_one_that_takes_callers_again_is_served():
    directory = Directory()
    job, callers = crowded(directory)

    def serve():
        time.sleep(0.3)
        FakeJob._serve(job)

    threading.Thread(target=serve, daemon=True).start()
    for caller in callers:
        caller.close()
    equal(cudaw("pause", str(job.pid)).code, 0)
    equal(job.requests, ["pause"])


def test_text_that_turns_the_line_round():
    job = FakeJob(Directory(), name="a\u202eb\u2066c", reason="x\u2028y\u200fz")
    out = cudaw("ps").out
    contains(out, "a???b???c")
    contains(out, f"{job.pid}: x???y???z")


if __name__ == "__main__":
    alone()
    main()
