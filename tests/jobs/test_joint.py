#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs of several processes resume together or not at all, whatever becomes of the command; and two of them at
once do not keep memory from each other."""
import fcntl
import glob
import os
import signal
import socket
import struct
import subprocess
import time

from simlib import after_case, errors_of_cudaw, gpu_used
from gpulib import (BUILD, CUDAW, PATIENCE, RUNTIME_DIR, SCRATCH, Job, base_environment, check, cudaw, cudaw_ok, equal,
                    hog, jobs, main, until)

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


class Ranks:
    """A job of two processes, each of which has files to hold its calls and its copies."""

    def __init__(self, name, held_call="cuMemCreate", how=""):
        self.name = name
        self.files = [{way: os.path.join(SCRATCH, f"{name}-{rank}-{way}") for way in ("CALL", "IN", "OUT")}
                      for rank in range(2)]
        ranks = [" ".join(f"CUDAW_SIM_HOLD_{way}={file}" for way, file in files.items()) +
                 f" CUDAW_SIM_HELD_CALL={held_call} {how} '{COUNTER}' --mib {MEMORY} --allocs 1 --steps 100000000 "
                 "--step-ms 2 &" for files in self.files]
        self.let_all_go()
        self.job = Job("/bin/sh", "-c", " ".join([*ranks, "wait"]), name=name)
        self.job.until(lambda: len(self.pids()) == 2, 30, "both ranks use CUDA")
        self.job.wait_steps(4)
        self.both = self.pids()     # one that is held in cuMemCreate() does not say its name

    def pids(self):
        return sorted(pid for pid, row in jobs().items() if row["name"] == self.name)

    def states(self):
        return [row["state"] for row in jobs().values() if row["name"] == self.name]

    def wait_states(self, state, count=2, timeout=30):
        until(lambda: self.states() == [state] * count, timeout, f"{self.name} is {state}")

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


def with_room_for_one(ranks, release):
    """Both ranks are paused, and the GPU has room for one of them; returns who has the rest."""
    cudaw_ok("pause", "--release", release, ranks.name)
    needs = MEMORY + 10 if release == "memory" else CONTEXT + MEMORY
    kept = 3 * CONTEXT if release == "memory" else CONTEXT
    return hog("--mib", GPU - kept - needs - 30)[0]


def ended_by(sig, release):
    def case():
        ranks = Ranks("ended")
        other = with_room_for_one(ranks, release)
        used = gpu_used()
        resume = ranks.resume()
        until(lambda: "waiting" in ranks.states(), 20, "one waits for memory")
        resume.send_signal(sig)
        resume.wait(20 * PATIENCE)
        ranks.job.check_still(seconds=0.5, spare=0)
        if release == "memory":     # else nothing says how much is free: a rank finds out by taking its own
            equal((ranks.states(), gpu_used()), (["waiting"] * 2, used), "the states, and the memory in use")
        other.discard()
        ranks.goes_on()
        ranks.end()
    return f"a resume of {release} outlives its command and {sig.name}", case


def a_resume_that_nobody_waits_for_is_joint():
    ranks = Ranks("nobody")
    other = with_room_for_one(ranks, "memory")
    resume = ranks.resume("--no-wait")
    out, err = resume.communicate(timeout=20 * PATIENCE)
    equal((resume.returncode, err), (0, ""), "the end of the command")
    check(out.count("resuming") == 2, f"it said {out!r}")
    ranks.wait_states("waiting")
    ranks.job.check_still(spare=0)
    other.discard()
    ranks.goes_on()
    ranks.end()


def a_stopped_command_holds_nobody():
    ranks = Ranks("stopped")
    other = with_room_for_one(ranks, "memory")
    resume = ranks.resume()
    ranks.wait_states("waiting")
    resume.send_signal(signal.SIGSTOP)
    other.discard()
    ranks.goes_on()
    resume.send_signal(signal.SIGCONT)
    out, err = resume.communicate(timeout=20 * PATIENCE)
    equal((resume.returncode, err, out.count("resumed")), (0, "", 2), "what it says when it goes on")
    ranks.end()


def a_later_resume_takes_the_place_of_the_first():
    ranks = Ranks("later")
    other = with_room_for_one(ranks, "memory")
    first = ranks.resume()
    ranks.wait_states("waiting")
    done = cudaw("resume", "--timeout", 1, ranks.name)
    equal(done.returncode, 5, f"the exit code of the second ({done.stderr})")
    first.communicate(timeout=20 * PATIENCE)
    equal((first.returncode, ranks.states()), (5, ["paused"] * 2), "the end of the first, and the states")
    other.discard()
    cudaw_ok("resume", ranks.name)
    ranks.goes_on()
    ranks.end()


def a_resume_of_one_rank_stays_with_the_others():
    """The others hold no memory for it: it goes on as they all do."""
    ranks = Ranks("plain")
    other = with_room_for_one(ranks, "memory")
    resume = ranks.resume()
    ranks.wait_states("waiting")
    os.kill(ranks.pids()[0], signal.SIGUSR2)
    alone = subprocess.Popen([CUDAW, "resume", str(ranks.pids()[1])], env=base_environment(),
                             stdout=subprocess.DEVNULL)
    ranks.job.check_still(seconds=0.5, spare=0)
    equal(ranks.states(), ["waiting"] * 2, "the states after it")
    other.discard()
    equal((alone.wait(20 * PATIENCE), resume.wait(20 * PATIENCE)), (0, 0), "the ends of the commands")
    ranks.goes_on()
    ranks.end()


def pact(members):
    """As common/pact.c makes one."""
    fd = os.memfd_create("test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    head = struct.pack("=8sQIIII", b"cudawp1", time.monotonic_ns(), os.getpid(), members, 0, 0)
    os.truncate(fd, len(head) + members * (8 + 64 * 56))
    os.pwrite(fd, head, 0)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return fd


def asked(pid, fd, request=b"regain\n"):
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(20 * PATIENCE)
    client.connect(os.path.join(RUNTIME_DIR, f"{pid}.sock"))
    socket.send_fds(client, [request], [fd])
    return client


def hears(client, word):
    said = b""
    while word not in said:
        part = client.recv(4096)
        check(part, f"the connection ended after {said!r}")
        said += part


def a_pause_command_that_is_stopped_has_agreed_for_all():
    """It says no more to any of them: they pause, and their time is not up."""
    ranks, token = Ranks("mute"), os.eventfd(0)
    clients = [asked(pid, token, b"hold 1000000\n") for pid in ranks.both]
    for client in clients:
        hears(client, b"held drained")
    equal(ranks.states(), ["pausing"] * 2, "the states until it has agreed")
    os.eventfd_write(token, 1)
    ranks.wait_states("paused")
    for client in clients:
        client.close()
    cudaw_ok("resume", ranks.name)
    ranks.goes_on()
    ranks.end()


def one_that_was_not_asked_keeps_nobody():
    """The command ended, or was stopped, between two requests: all are paused again, soon."""
    ranks = Ranks("half")
    cudaw_ok("pause", ranks.name)
    client = asked(ranks.pids()[0], pact(2))
    until(lambda: sorted(ranks.states()) == ["paused", "waiting"], 20, "one waits for the other")
    ranks.wait_states("paused")
    client.close()
    cudaw_ok("resume", ranks.name)
    ranks.goes_on()
    ranks.end()


def what_is_no_pact_is_refused():
    ranks = Ranks("odd")
    cudaw_ok("pause", ranks.name)
    for size in (0, 31, 32, 10000):
        fd = os.memfd_create("test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.truncate(fd, size)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        client = asked(ranks.pids()[0], fd)     # as without one: the client leads
        hears(client, b"held ")
        client.sendall(b"abort\n")
        ranks.wait_states("paused")
    cudaw_ok("resume", ranks.name)
    ranks.goes_on()
    ranks.end()


WAYS = {"takes": "CALL", "copies": "IN", "waits": None}


def at_steps(*steps):
    """Jobs of which one rank is at that step of its resume, and the other one is whole, or waits as well: two
    for each step. Returns them with their commands, and the one of that two; and who has the GPU's memory."""
    found, other = [(Ranks(f"{step}{turn}"), step, turn) for step in steps for turn in range(2)], None
    for ranks, _, _ in found:
        cudaw_ok("pause", "--release", "memory", ranks.name)
    if "waits" in steps:
        other = hog("--mib", GPU - (1 + 2 * len(found)) * CONTEXT - MEMORY - 40)[0]
    there = []
    for ranks, step, turn in found:
        if WAYS[step]:
            ranks.hold(1, WAYS[step])
        there.append((ranks, ranks.resume(), turn))
    for ranks, step, _ in found:
        if WAYS[step]:
            until(lambda r=ranks, way=WAYS[step]: r.holder(1, way), 20, "it is there")
        else:
            ranks.wait_states("waiting")
    return there, other


def a_rank_ends(how):
    def case():
        for steps in ("takes", "copies"), ("waits",):
            there, other = at_steps(*steps)
            for ranks, resume, turn in there:
                held = ranks.holder(1, "CALL") or ranks.holder(1, "IN") or ranks.both[1]
                if how == "after the command":
                    resume.kill()
                    resume.wait()
                if how == "with the command stopped":
                    resume.send_signal(signal.SIGSTOP)
                os.kill(next(pid for pid in ranks.both if (pid == held) == (turn == 0)), signal.SIGKILL)
                ranks.let_all_go()
            for ranks, resume, _ in there:      # one may have ended when it was whole: then all are, and go on
                until(lambda r=ranks: r.states() in (["paused"], ["running"]), 30, f"{ranks.name} runs, or is paused")
                if how == "with the command stopped":
                    resume.kill()
                resume.wait(20 * PATIENCE)
            if other:
                other.discard()
            for ranks, _, _ in there:
                cudaw_ok("resume", ranks.name)
                ranks.wait_states("running", count=1)
                ranks.end()
    return f"a rank ends at each step {how}", case


def a_command_ends_at_each_step():
    for steps in ("takes", "copies"), ("waits",):
        there, other = at_steps(*steps)
        for ranks, resume, _ in there:
            resume.kill()
            resume.wait()
            ranks.job.check_still(spare=0)
        if other:
            other.discard()
        for ranks, _, _ in there:
            ranks.let_all_go()
        for ranks, _, _ in there:
            ranks.goes_on()
            ranks.end()


PAUSE_STEPS = {"out": ("OUT", ""), "unmap": ("CALL", "cuMemUnmap"), "release": ("CALL", "cuCheckpointProcessLock")}


def a_pause_ends_well(who):
    """One rank is at each of the steps of a pause: those that live run, or are paused."""
    def case():
        for name, (way, call) in PAUSE_STEPS.items():
            ranks = Ranks(name, call)
            ranks.hold(1, way)
            pause = subprocess.Popen([CUDAW, "pause", ranks.name], env=base_environment(), text=True,
                                     stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            until(lambda r=ranks, w=way: r.holder(1, w), 20, "it is there")
            held = ranks.holder(1, way)
            victims = {"the held rank": [held], "the other rank": [p for p in ranks.both if p != held],
                       "the command": [pause.pid], "the held rank and the command": [pause.pid, held]}[who]
            for pid in victims:
                os.kill(pid, signal.SIGKILL)
            ranks.let_all_go()
            pause.communicate(timeout=60 * PATIENCE)
            left = 2 if who == "the command" else 1
            until(lambda r=ranks, n=left: r.states() in (["running"] * n, ["paused"] * n), 30,
                  f"{name}: all run, or all are paused")
            cudaw_ok("resume", ranks.name)
            ranks.wait_states("running", count=left)
            ranks.end()
    return f"the end of {who} at each step of a pause", case


def a_stopped_rank_keeps_nobody():
    """Not even without a command: the other one gives its memory back, and the stopped one when it goes on."""
    ranks = Ranks("still")
    cudaw_ok("pause", "--release", "memory", ranks.name)
    used = gpu_used()
    ranks.hold(1, "CALL")
    resume = ranks.resume()
    until(lambda: ranks.holder(1, "CALL"), 20, "it takes its memory")
    stopped = ranks.holder(1, "CALL")
    os.kill(stopped, signal.SIGSTOP)
    resume.kill()
    resume.wait()
    other = next(pid for pid in ranks.both if pid != stopped)
    until(lambda: jobs()[other]["state"] == "paused", 30, "the other one is paused")
    ranks.let_go(1, "CALL")
    os.kill(stopped, signal.SIGCONT)
    ranks.wait_states("paused")
    equal(gpu_used(), used, "the memory in use")
    cudaw_ok("resume", ranks.name)
    ranks.goes_on()
    ranks.end()


def two_jobs_at_once(release):
    """The GPU has room for one of them, and each gets a half of it: one gives it back."""
    def case():
        both = [Ranks(name, "cuMemCreate") for name in ("one", "two")]
        for ranks in both:
            cudaw_ok("pause", "--release", release, ranks.name)
        kept = 5 * CONTEXT if release == "memory" else CONTEXT
        needs = 2 * (MEMORY + 10) if release == "memory" else 2 * (CONTEXT + MEMORY + 10)
        other = hog("--mib", GPU - kept - needs - 20)[0]
        for ranks in both:
            ranks.hold(0, "CALL")
            ranks.hold(1, "CALL")
        resumes = [ranks.resume() for ranks in both]
        if release == "memory":     # else jobs of one user restore one after the other
            until(lambda: all(ranks.holder(rank, "CALL") for ranks in both for rank in range(2)), 30,
                  "all take their memory")
        for ranks, rank in zip(both, (0, 1)):
            until(lambda r=ranks, k=rank: r.holder(k, "CALL") or release == "all", 30, "it takes its memory")
            used = gpu_used()
            ranks.let_go(rank, "CALL")
            until(lambda u=used: gpu_used() > u or release == "all", 20, "it has it")
        for ranks, rank in zip(both, (1, 0)):
            ranks.let_go(rank, "CALL")
        until(lambda: [ranks.states() for ranks in both].count(["running"] * 2) == 1, 60, "one of them runs")
        first, second = sorted(both, key=lambda ranks: ranks.states() != ["running"] * 2)
        second.wait_states("waiting")
        cudaw_ok("pause", first.name)
        second.goes_on()
        for command in resumes:
            equal(command.wait(20 * PATIENCE), 0, "the end of a command")
        other.discard()
        cudaw_ok("resume", first.name)
        first.goes_on()
        first.end()
        second.end()
    return f"two jobs resume at once after a release of {release}", case


main(*(ended_by(sig, release) for release in ("memory", "all")
       for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)),
     a_resume_that_nobody_waits_for_is_joint, a_stopped_command_holds_nobody,
     a_later_resume_takes_the_place_of_the_first, a_resume_of_one_rank_stays_with_the_others,
     one_that_was_not_asked_keeps_nobody, what_is_no_pact_is_refused,
     *(a_rank_ends(how) for how in ("beside the command", "after the command", "with the command stopped")),
     a_command_ends_at_each_step, a_stopped_rank_keeps_nobody, a_pause_command_that_is_stopped_has_agreed_for_all,
     *(a_pause_ends_well(who) for who in ("the held rank", "the other rank", "the command",
                                          "the held rank and the command")),
     two_jobs_at_once("memory"), two_jobs_at_once("all"))
