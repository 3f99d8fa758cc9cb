#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whoever waits for a job learns when it is paused, has left the GPU, or is saved; and the journal of the runtime
directory tells who asked for what.
"""
import json
import os
import resource
import shutil
import signal
import subprocess
import time

from simlib import HELD, SCRATCH, hold, is_stopped, let_go
from json_docs import check_documented
from proclib import descriptors
from restorelib import STAND_IN, Counting, commit_held, directory, why_not
from gpulib import BUILD, CUDAW, RUNTIME_DIR, Job, Skip, base_environment, check, cudaw, cudaw_ok, equal, main, until

ENDLESS = ("--steps", 1000000, "--step-ms", 10)
JOURNAL, OLD = (os.path.join(RUNTIME_DIR, name) for name in ("events", "events.1"))
MEMORY_MIB = 34     # of a Counting job
DONE, FAILED, NO_JOB, TIMEOUT, UNSUPPORTED = 0, 1, 3, 5, 6


def counter(name=None, mib=16, mode="run", **env):
    job = Job("counter", "--mib", mib, *ENDLESS, name=name, mode=mode, env=env)
    job.wait_steps(3)
    return job


def events(job=None):
    """What cudaw events says, of one job."""
    rows = [json.loads(line) for line in cudaw_ok("events", "--json").splitlines()]
    return [row for row in rows if job is None or row["pid"] == job.pid]


def kinds(job):
    return [row["event"] for row in events(job)]


def forget():
    subprocess.run(["rm", "-rf", JOURNAL, OLD], check=True)


def hold_still(job):
    job.send(signal.SIGSTOP)
    until(lambda: is_stopped(job.pid), 20, "it is stopped")


class Waiting:
    """A cudaw wait, which has begun to watch."""

    def __init__(self, *args, watches=True):
        self.process = subprocess.Popen([CUDAW, "wait", *map(str, args)], env=base_environment(), text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        ready = self.watches if watches else self.processes
        until(lambda: ready() or self.process.poll() is not None, 20, "it watches the directory")

    def watches(self):
        links = descriptors(self.process.pid)
        for fd in (number for number, link in links.items() if "inotify" in link):
            with open(f"/proc/{self.process.pid}/fdinfo/{fd}", encoding="ascii") as file:
                # and has read what was there
                return "inotify wd:" in file.read() and any("pidfd" in link for link in links.values())
        return False

    def processes(self):
        """How many it would see end."""
        return sum("pidfd" in link for link in descriptors(self.process.pid).values())

    def end(self):
        """Its exit code, and what it said."""
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out + err


def waits_end_when_the_job_is_there():
    job = counter("train")
    for state in ("paused", "freed"):
        waiting = Waiting("--for", state, "train")
        job.pause()
        equal(waiting.end(), (DONE, ""), f"what waited for {state}")
        equal(cudaw("wait", "--for", state, job.pid).returncode, DONE, "one that comes later")
        job.resume()
    equal(cudaw("wait", "--for", "paused", "--timeout", 0.1, "train").returncode, TIMEOUT, "it runs again")
    waiting = Waiting("--for", "paused", "train")
    job.pause("signal")
    equal(waiting.end(), (DONE, ""), "by a signal")
    job.resume()
    check("every word right" in job.finish(), "the job did not verify its memory")


def with_its_context_it_has_not_left():
    job = counter()
    cudaw_ok("pause", "--release", "memory", job.pid)
    equal(cudaw("wait", "--for", "paused", job.pid).returncode, DONE, "it is paused")
    equal(cudaw("wait", "--for", "freed", "--timeout", 0.1, job.pid).returncode, TIMEOUT, "its context is there")
    equal(job.status()["freed"], False, "cudaw ps says so")
    waiting = Waiting("--for", "freed", job.pid)
    cudaw_ok("pause", "--release", "all", job.pid)
    equal(waiting.end(), (DONE, ""), "all is gone")
    equal(job.status()["freed"], True, "cudaw ps says so")
    equal(kinds(job), ["pause", "paused", "pause", "freed"], "the events")


def a_job_of_several_processes():
    """It is paused when all of them are, a PID means one; and it has ended when none is there."""
    first, second = (counter(mode="path", CUDAW_JOB="abc123") for _ in range(2))
    waiting, one = Waiting("--for", "paused", "--json", "abc123"), Waiting("--for", "paused", first.pid)
    cudaw_ok("pause", first.pid)
    equal(one.end(), (DONE, ""), "one is paused")
    equal(waiting.process.poll(), None, "the other one runs")
    cudaw_ok("pause", second.pid)
    code, said = waiting.end()
    row, = rows = json.loads(said)
    check_documented("wait", rows)
    equal((code, row["outcome"], row["id"], row["pid"]), (DONE, "done", "abc123", None), "both are")
    cudaw_ok("resume", "abc123")
    waiting = Waiting("--for", "paused", "abc123")
    until(lambda: waiting.processes() == 2, 20, "it watches both")
    first.discard()
    until(lambda: waiting.processes() == 1, 20, "it watches the one that is left, and looks no more at the other")
    cudaw_ok("pause", second.pid)
    equal(waiting.end(), (DONE, ""), "all that is left is paused")


def a_process_that_is_stopped():
    """It cannot answer, and is what it has told last."""
    first, second = (counter(mode="path", CUDAW_JOB="abc124") for _ in range(2))
    waiting = Waiting("--for", "freed", "abc124")
    hold_still(first)
    cudaw_ok("pause", second.pid)
    equal(waiting.process.poll(), None, "the first one was not paused")
    first.send(signal.SIGCONT)
    cudaw_ok("pause", first.pid)
    equal(waiting.end(), (DONE, ""), "both have left")
    cudaw_ok("resume", second.pid)
    waiting = Waiting("--for", "freed", "abc124")
    hold_still(first)
    cudaw_ok("pause", second.pid)
    equal(waiting.end(), (DONE, ""), "the first one has told that it has left")
    first.send(signal.SIGCONT)


def a_process_that_is_stopped_before():
    """It is waited for, and that is said; or it has told before that it has left."""
    first, second = counter("first"), counter("second", mode="path", CUDAW_JOB="abc124")
    said = "cudaw: wait {}: its process {} is stopped; the command waits until it goes on\n"
    for job, word, state in (first, first.pid, "saved"), (first, "first", "freed"), (second, "abc124", "freed"):
        hold_still(job)
        found = cudaw("wait", "--for", state, "--timeout", "0.1", word)
        label = found.stderr.split()[2][:-1]    # the id, which "cudaw run" has made
        equal((found.returncode, found.stderr),
              (TIMEOUT, said.format(label, job.pid) + f"cudaw: wait {label}: the time is over\n"), (word, state))
        job.send(signal.SIGCONT)
    hold_still(first)
    waiting = Waiting("--for", "freed", first.pid, second.pid)
    cudaw_ok("pause", second.pid)
    equal(waiting.process.poll(), None, "it is waited for")
    first.send(signal.SIGCONT)
    cudaw_ok("pause", first.pid)
    equal(waiting.end()[0], DONE, "both have left")
    hold_still(first)
    equal(cudaw_ok("wait", "--for", "freed", first.pid), "", "it had left before")
    first.send(signal.SIGCONT)


def a_job_that_ends():
    for state in ("paused", "freed", "saved"):
        job = counter("ends")
        waiting = Waiting("--for", state, "ends")
        job.process.kill()
        equal(waiting.end(), (NO_JOB, "cudaw: wait ends: it has ended\n"), state)
        job.discard()
    equal(cudaw("wait", "--for", "paused", "ends").returncode, NO_JOB, "there is none")


def a_pause_that_fails():
    """Whoever waits is told, and not left to wait; what failed before does not count."""
    job = Job("spin", *ENDLESS)     # its kernels do not end
    job.wait_steps(3)
    waiting = Waiting("--for", "paused", job.pid)
    cudaw("pause", "--timeout", 0.2, job.pid)
    code, said = waiting.end()
    equal(code, FAILED, said)
    failed = events(job)[-1]
    equal((failed["event"], failed["operation"]), ("failed", "pause"), "the event")
    check(failed["text"] in said, f"it said {said}, and the event {failed['text']}")
    equal(cudaw("wait", "--for", "paused", "--timeout", 0.1, job.pid).returncode, TIMEOUT, "it is over")


def a_pause_that_is_taken_back():
    """A later resume calls it off, which is no failure: who waits goes on to wait."""
    job = counter(mib=32, **HELD)
    waiting = Waiting("--for", "paused", job.pid)
    hold("out")
    job.send(signal.SIGUSR1)
    job.wait_state("pausing")
    job.send(signal.SIGUSR2)
    let_go("out")
    job.wait_state("running")
    equal(waiting.process.poll(), None, "it waits on")
    job.pause()
    equal(waiting.end(), (DONE, ""), "it is paused at last")


def saved_without_an_image():
    job = counter("saves")
    waiting = Waiting("--for", "saved", "saves")
    path = f"{directory()}-données"
    cudaw_ok("snapshot", "--gpu-only", job.pid, path)
    equal(waiting.end(), (DONE, ""), "it is saved")
    until(lambda: kinds(job)[-1] == "running", 10, "it runs on")
    equal(cudaw("wait", "--for", "saved", "--timeout", 0.1, "saves").returncode, TIMEOUT, "it has run since")
    job.pause()
    cudaw_ok("snapshot", "--gpu-only", job.pid, path)
    equal(cudaw("wait", "--for", "saved", "saves").returncode, DONE, "it has not run since")
    equal([row["text"] for row in events(job) if row["event"] in ("snapshot", "saved")], [path] * 4, "the directory")


def saved_while_it_runs():
    """It has gone on by then: who asks later hears that it has run since its memory was written."""
    job = Counting()
    with commit_held(job) as snapshot:
        snapshot.let_criu_go()
        until(lambda: job.state() == "running", 30, "it goes on")
        cudaw_ok("pause", job.pid)
        waiting = Waiting("--for", "saved", job.pid)
    snapshot.end()
    equal(waiting.end(), (DONE, ""), "it is saved")
    equal(cudaw("wait", "--for", "saved", "--timeout", 0.1, job.pid).returncode, TIMEOUT, "it has run")


def one_that_was_saved_before():
    """A process that had its PID and its CUDAW_JOB."""
    job = counter("again")
    event = {"event": "saved", "pid": job.pid, "id": job.status()["id"]}
    for when, code in (1, TIMEOUT), (time.time_ns() // 1000000, DONE):
        with open(JOURNAL, "a", encoding="ascii") as file:
            file.write(json.dumps({"unix_ms": when, **event}) + "\n")
        os.chmod(JOURNAL, 0o600)
        equal(cudaw("wait", "--for", "saved", "--timeout", 0.1, "again").returncode, code, f"saved at {when}")


def saved_with_its_processes():
    """The job cannot say that: it is stopped, or has ended by then."""
    if os.getuid() != 0:
        raise Skip("process images take root")
    if why_not():
        os.environ["CUDAW_CRIU"] = STAND_IN
    job = Counting()
    waiting = Waiting("--for", "saved", job.pid)
    path = directory()
    cudaw_ok("snapshot", "--stop", job.pid, path)
    equal(waiting.end(), (DONE, ""), "it is saved")
    said = events(job)
    equal((said[-1]["event"], said[-1]["text"]), ("saved", path), "the event")
    equal([row["bytes"] for row in said if row["event"] == "paused"], [MEMORY_MIB << 20], "what has left the GPU")


def who_asked():
    job = counter("asked")
    paused = subprocess.Popen([CUDAW, "pause", "asked"], env=base_environment(), stdout=subprocess.DEVNULL)
    paused.wait()
    subprocess.run(["sh", "-c", f"kill -USR2 {job.pid}; echo; read line"], stdin=subprocess.PIPE, check=False)
    job.wait_state("running")
    pause, = (row for row in events(job) if row["event"] == "pause")
    resume, = (row for row in events(job) if row["event"] == "resume")
    check_documented("events", pause, every=False)
    equal((pause["by"], pause["name"]), ({"uid": os.getuid(), "pid": paused.pid, "command": f"{CUDAW} pause asked"},
                                         "asked"), "by a command")
    equal((resume["by"]["uid"], resume["text"]), (os.getuid(), "by a signal"), "by a signal")
    check(f"{job.pid} (asked)  pause: asked by " in cudaw_ok("events"), "people read that, too")
    equal(kinds(job), ["pause", "paused", "freed", "resume", "running"], "the order")


def what_follows():
    """Events come as they happen, also those of a job that begins later, and across a file that is full."""
    forget()
    process = subprocess.Popen([CUDAW, "events", "--follow", "--json"], env=base_environment(), text=True,
                               stdout=subprocess.PIPE)
    job = counter()
    job.pause()
    for kind in ("pause", "paused", "freed"):
        row = json.loads(process.stdout.readline())
        equal((row["event"], row["pid"]), (kind, job.pid), "the event")
    with open(JOURNAL, "ab") as file:
        file.write(b"x" * (1 << 20) + b"\n")
    job.resume()        # its first event goes there still
    job.pause()
    for kind in ("resume", "running", "pause", "paused", "freed"):
        equal(json.loads(process.stdout.readline())["event"], kind, "the event")
    process.kill()
    check(os.path.getsize(OLD) > 1 << 20 > os.path.getsize(JOURNAL), "the file was put aside")
    equal(kinds(job)[:3], ["pause", "paused", "freed"], "what was before is there")
    with open(JOURNAL, "ab") as file:
        file.write(b"x" * (1 << 20) + b"\n")
    job.resume()
    check(os.path.getsize(OLD) + os.path.getsize(JOURNAL) < 3 << 20, "it has a bound")


def rubbish():
    """The directory's owner can write anything there: it is passed over, or cleaned."""
    lines = [b"\xff\xfe{}\n", b"[]\n", b'{"event": 7}\n', b'{"event": "danced"}\n', b"{" * 5000 + b"\n",
             b'{"event": "paused", "pid": -5, "unix_ms": 99999999999999999, "name": "\\u001b[31m"}\n',
             b'{"event": "freed"']
    job = counter()
    with open(JOURNAL, "ab") as file:
        file.write(b"".join(lines))
    equal([(row["event"], row["pid"], row["name"]) for row in events()][-1:], [("paused", 0, "?[31m")], "what is left")
    check("\x1b" not in cudaw_ok("events"), "nothing reaches the terminal")
    job.pause()
    equal(cudaw("wait", "--for", "paused", job.pid).returncode, DONE, "jobs are as before")


def no_place_for_it():
    """A job is paused as ever where its journal cannot be written, and whoever waits is woken."""
    def link():
        os.symlink("/etc/passwd", JOURNAL)

    def full():
        os.symlink("/dev/full", JOURNAL)

    for spoil in (link, full, lambda: os.mkfifo(JOURNAL), lambda: os.mkdir(JOURNAL)):
        job = counter()
        forget()
        spoil()
        job.pause()
        equal(cudaw("wait", "--for", "freed", job.pid).returncode, DONE, "it is paused")
        equal(events(), [], "there are no events")
        job.resume()
        job.finish()
    forget()


def a_limit_of_file_sizes():
    """The event is lost, and the program, which never asked for a file, lives."""
    job = counter()
    with open(JOURNAL, "ab") as file:
        file.write(b"\n" * 5000)
    resource.prlimit(job.pid, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
    job.pause()
    resource.prlimit(job.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    job.resume()
    equal(kinds(job), ["resume", "running"], "the events since")
    check("every word right" in job.finish(), "the job did not verify its memory")


def a_job_in_another_mount_namespace():
    """As in a container: its journal is not seen, so it is asked from time to time. Nothing says that it is saved."""
    mount = ["unshare", "-m", "sh", "-c", f'mount -t tmpfs none {SCRATCH} && exec "$@"', "sh"]
    if os.getuid() != 0 or subprocess.run([*mount, "true"], check=False, capture_output=True).returncode:
        raise Skip("nothing can be mounted here")
    programs = os.path.join(BUILD, "tests", "programs")
    job = Job(shutil.which("unshare"), *mount[1:], os.path.join(programs, "counter"), "--mib", 16, *ENDLESS)
    job.wait_steps(3)
    waiting = subprocess.Popen([CUDAW, "wait", "--for", "freed", str(job.pid)], env=base_environment())
    job.pause()
    equal(waiting.wait(60), DONE, "it has left")
    equal(events(job), [], "its events are elsewhere")
    refused = cudaw("wait", "--for", "saved", job.pid)
    equal((refused.returncode, refused.stdout), (UNSUPPORTED, ""), refused.stderr)
    check("call this command in its container" in refused.stderr, refused.stderr)
    job.resume()
    job.finish()
    # Its kernels do not end.
    job = Job(shutil.which("unshare"), *mount[1:], os.path.join(programs, "spin"), *ENDLESS)
    job.wait_steps(3)
    cudaw("pause", "--timeout", 0.2, job.pid)
    equal(cudaw("wait", "--for", "paused", "--timeout", 0.1, job.pid).returncode, TIMEOUT, "what failed before")
    waiting = Waiting("--for", "paused", job.pid, watches=False)
    cudaw("pause", "--timeout", 0.2, job.pid)
    code, said = waiting.end()
    equal(code, FAILED, said)
    check(job.status()["reason"] in said, f"it said {said}")


def waiting_costs_nothing():
    """It sleeps until something happens: no time of a processor, and no question to the job."""
    job = counter()
    waiting = Waiting("--for", "paused", job.pid)
    with open(f"/proc/{waiting.process.pid}/syscall", encoding="ascii") as file:
        equal(file.read().split()[0] in ("7", "271"), True, "it is in poll()")
    job.pause()
    equal(waiting.end()[0], DONE, "it is paused")


main(waits_end_when_the_job_is_there, with_its_context_it_has_not_left, a_job_of_several_processes,
     a_process_that_is_stopped, a_process_that_is_stopped_before, a_job_that_ends, a_pause_that_fails, a_pause_that_is_taken_back,
     saved_without_an_image, saved_while_it_runs, one_that_was_saved_before, saved_with_its_processes, who_asked,
     what_follows, rubbish, no_place_for_it, a_limit_of_file_sizes, a_job_in_another_mount_namespace, waiting_costs_nothing)
