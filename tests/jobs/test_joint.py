#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs of several processes resume together or not at all, whatever becomes of the command; and two of them at
once do not keep memory from each other.
"""
import fcntl
import os
import signal
import socket
import struct
import subprocess

from jointlib import CONTEXT, COUNTER, GPU, MEMORY, Held, Pauser, Ranks, pact, room_for_one, with_room_for_one
from simlib import SCRATCH, gpu_used, process_used
from snapshotjobs import no_host_memory
from gpulib import (CUDAW, PATIENCE, RUNTIME_DIR, Job, base_environment, check, cudaw, cudaw_ok, equal, hog, jobs, main,
                    until)


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


def a_rank_that_gets_no_further_has_a_time_limit():
    """It copies for ever; the other one has all of its memory, and gives it back."""
    ranks = Ranks("further")
    cudaw_ok("pause", "--release", "memory", ranks.name)
    ranks.hold(1, "IN")
    resume = ranks.resume("--timeout", "1")
    until(lambda: ranks.holder(1, "IN"), 20, "it copies")
    other = next(pid for pid in ranks.all if pid != ranks.holder(1, "IN"))
    until(lambda: jobs()[other]["state"] == "paused", 30, "the other one is paused")
    ranks.let_all_go()
    _, said = resume.communicate(timeout=20 * PATIENCE)
    equal(resume.returncode, 5, f"the exit code ({said})")
    check("another process of the job did not have its memory within 1 s" in said, f"the command says {said!r}")
    ranks.wait_states("paused")
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


def a_rank_that_knows_what_is_free_counts_a_context_for_what_it_can_have():
    """Nothing says what a process holds; the other rank was paused to the last byte, on a GPU that is almost idle."""
    ranks = Ranks("counted")
    for pid, release in zip(ranks.pids(), ("memory", "all")):
        cudaw_ok("pause", "--release", release, str(pid))
    used = 2 * CONTEXT      # by both, when the second was paused: how much of it is its own is not known
    other = hog("--mib", GPU - 2 * CONTEXT - used - 2 * (MEMORY + 10) - 30)[0]
    cudaw_ok("resume", "--timeout", 10, ranks.name)
    ranks.goes_on()
    other.discard()
    ranks.end()


def asked(pid, fd, request=b"regain\n"):
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(20 * PATIENCE)
    client.connect(os.path.join(RUNTIME_DIR, f"{pid}.sock"))
    socket.send_fds(client, [request], [fd] if fd else [])
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
    clients = [asked(pid, token, b"hold 1000000\n") for pid in ranks.all]
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


def a_pause_that_is_given_up_resumes_no_rank_alone():
    """Its command ends before all are at rest, or is killed: it has ended the resume of all."""
    ranks = Ranks("given", how="CUDAW_NOTICES=1")
    other = with_room_for_one(ranks, "memory")
    resume = ranks.resume()
    ranks.wait_states("waiting")
    clients = [asked(pid, None, b"hold\n") for pid in ranks.all]
    for client in clients:
        hears(client, b"held drained")
        client.close()
    ranks.wait_states("paused")
    resume.communicate(timeout=20 * PATIENCE)
    ranks.job.until(lambda: ranks.job.stderr().count("stays paused, with") == 2, 20, "both say so")
    other.discard()
    cudaw_ok("resume", ranks.name)
    ranks.wait_states("running")
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


class WithOneApart(Held):
    """Two processes share memory. A third one shares nothing, and has the files that hold it up."""

    def __init__(self):
        super().__init__("apart", 3)

    def start(self):
        held = " ".join(f"CUDAW_SIM_HOLD_{way}={file}" for way, file in self.files[0].items())
        return Job("/bin/sh", "-c", f"{held} '{COUNTER}' --mib 2 --allocs 1 --steps 100000000 --step-ms 10 & "
                   f"exec '{os.path.dirname(COUNTER)}/sharing' --ranks 2 --objects 1 --mib 2 --steps 100000000 "
                   "--step-ms 10", name=self.name)


def words(fd, *places):
    """Of a pact: its word, and those that say how far its members are (common/protocol/pact.c)."""
    return [struct.unpack("=I", os.pread(fd, 4, place))[0] for place in places]


def one_is_stopped_that_has_agreed(go):
    """Of two that share memory, and the other one is told to pause. It keeps what all have agreed to, or waits until
    its memory is given back, before the driver's checkpoint."""
    def case():
        ranks, fd = WithOneApart(), pact(3)
        cudaw_ok("pause", ranks.name)
        ranks.hold(0, "IN")
        clients = [asked(pid, fd) for pid in ranks.all]
        slots = [36 + member * (8 + 64 * 56) for member in range(3)]
        until(lambda: ranks.holder(0, "IN") and [says & 7 for says in words(fd, *slots)].count(6) == 2, 20,
              "two are whole")
        apart = ranks.holder(0, "IN")
        told, stopped = (pid for pid in ranks.all if pid != apart)
        os.kill(stopped, signal.SIGSTOP)
        if go:
            ranks.let_all_go()
            until(lambda: words(fd, 28)[0] & 3 == 2, 20, "the pact says GO")
        clients.append(asked(told, fd, b"pause\n"))
        for _ in range(25 if go else 5):    # ten a second; 1 s for each answer of the stopped one
            hears(clients[-1], b"progress ")
        equal(jobs()[told]["state"], "resuming", "the state of the one that was told")
        os.kill(stopped, signal.SIGCONT)
        ranks.let_all_go()
        if not go:
            ranks.wait_states("paused")
            equal(process_used(told) or 0, 0, "MiB that it leaves on the GPU")
            cudaw_ok("resume", ranks.name)
        ranks.wait_states("running")
        for client in clients:
            client.close()
        ranks.end()
    return f"one is stopped that has agreed {'and all have' if go else 'before all have'}", case


class InSnapshots(Held):
    """Two processes, which a signal pauses each into a snapshot of its own."""

    def __init__(self):
        self.parts = [os.path.join(SCRATCH, f"part-{rank}") for rank in range(2)]
        super().__init__("parts", 2)

    def start(self):
        ranks = [f"CUDAW_SNAPSHOT_DIR={part} '{COUNTER}' --mib {MEMORY} --allocs 1 --steps 100000000 --step-ms 10 &"
                 for part in self.parts]
        return Job("/bin/sh", "-c", " ".join([*ranks, "wait"]), name=self.name)

    def in_snapshots(self):
        """How many have their memory there alone."""
        return sum(row["snapshot"] in self.parts for row in jobs().values() if row["name"] == self.name)


def ranks_read_their_snapshots_when_all_have_room():
    """They find no host memory, and stay in their snapshots until they do."""
    ranks = InSnapshots()
    for pid in ranks.all:
        os.kill(pid, signal.SIGUSR1)
    until(lambda: ranks.in_snapshots() == 2, 30, "all are in their snapshots")
    with no_host_memory():
        resume = ranks.resume()
        until(lambda: any("host memory, to read" in (row["reason"] or "") for row in jobs().values()), 20,
              "one lacks it")
        ranks.job.check_still(spare=0)
        equal((ranks.states(), ranks.in_snapshots()), (["waiting"] * 2, 2), "the states, and those in snapshots")
    equal(resume.wait(20 * PATIENCE), 0, "the end of the command")
    ranks.goes_on()
    ranks.end()


def a_late_request_with_an_older_pact_resumes_no_rank_alone():
    """Its command was stopped before it sent it. The later pact has been called off, and has not ended."""
    ranks = Ranks("stale")
    cudaw_ok("pause", "--release", "memory", ranks.name)
    older, later = pact(2), pact(2)
    ranks.hold(1, "CALL")
    clients = [asked(pid, later) for pid in ranks.pids()]
    until(lambda: ranks.holder(1, "CALL"), 20, "it takes its memory")
    held = ranks.holder(1, "CALL")
    clients.append(asked(held, None, b"pause\n"))
    hears(clients[-1], b"progress")
    clients.append(asked(held, older))
    said = clients[-1].recv(4096)
    check(said.startswith(b"end busy superseded"), f"the answer to it is {said!r}")
    ranks.let_go(1, "CALL")
    until(lambda: jobs()[held]["state"] == "paused", 20, "it is paused")    # the other one may run: it was whole
    for client in clients:
        client.close()
    cudaw_ok("resume", ranks.name)
    ranks.goes_on()
    ranks.end()


def a_snapshot_that_is_killed(one_is_told):
    """They were paused for it alone: they resume together, also if it has told one of them that it is done."""
    def case():
        ranks = Ranks("lent")
        fd = pact(2)
        pauser = Pauser(ranks.pids(), fd)
        other = room_for_one("all")
        if one_is_told:
            pauser.say_done(ranks.pids()[0])
            until(lambda: "paused" != jobs()[ranks.pids()[0]]["state"], 20, "it is to resume")
        pauser.kill()
        until(lambda: "paused" not in ranks.states() and "waiting" in ranks.states(), 20, "they wait for memory")
        client = asked(ranks.pids()[1], fd)     # it has that pact already
        ranks.job.check_still(seconds=0.5, spare=0)
        other.discard()
        ranks.wait_states("running")
        ranks.job.wait_steps(ranks.job.steps() + 6, timeout=20)
        client.close()
        ranks.end()
    return f"a snapshot is killed that {'one knows to be done' if one_is_told else 'makes its image'}", case


def one_that_leaves_a_loan_by_itself_keeps_nobody():
    """Its user has asked for it alone. The other one goes on when the command is done, which hears of no failure."""
    ranks = Ranks("leaves")
    fd = pact(2)
    pauser = Pauser(ranks.pids(), fd)
    cudaw_ok("resume", "--no-wait", str(ranks.pids()[0]))
    until(lambda: sorted(ranks.states()) == ["paused", "running"], 20, "it runs alone")
    for pid in ranks.pids():
        pauser.say_done(pid)
    ranks.goes_on()
    client = asked(ranks.pids()[0], fd, b"done /nowhere\n")
    hears(client, b"end ok")
    client.close()
    pauser.kill()
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
     a_rank_that_gets_no_further_has_a_time_limit,
     a_rank_that_knows_what_is_free_counts_a_context_for_what_it_can_have,
     a_pause_that_is_given_up_resumes_no_rank_alone, a_late_request_with_an_older_pact_resumes_no_rank_alone,
     one_that_was_not_asked_keeps_nobody, one_is_stopped_that_has_agreed(True),
     one_is_stopped_that_has_agreed(False), ranks_read_their_snapshots_when_all_have_room, what_is_no_pact_is_refused,
     one_that_leaves_a_loan_by_itself_keeps_nobody, a_snapshot_that_is_killed(False), a_snapshot_that_is_killed(True),
     a_pause_command_that_is_stopped_has_agreed_for_all, two_jobs_at_once("memory"), two_jobs_at_once("all"))
