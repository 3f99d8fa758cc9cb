#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The job's side of cudawd (CUDAW_TURNS), with a stand-in for the daemon."""
import contextlib
import os
import resource
import select
import signal
import time

from simlib import (MIB, SCRATCH, TSAN, is_stopped, kept_descriptors, knows_gpu, process_used, skipped,
                    unsanitized)
from gpulib import BUILD, PATIENCE, Job, Skip, check, cudaw, cudaw_ok, equal, hog, main
from harness import until
from lease import EVERYTHING, Lease
from daemonlib import IDLE_MS, Daemon, Member, member

SIZE_MIB = 24
MEETINGS_S = 5      # of the processes of a job that could not come to rest alone
CONTEXT_MIB = 64    # of the simulated GPU; without NVML the job takes a guess, which is more


def counting(**env):
    job, lease = member("counter", "--mib", SIZE_MIB, "--allocs", 12, "--verify", 1, "--steps", 1000000,
                        "--step-ms", 10, **env)
    job.wait_steps(3)
    return job, lease


def finish(job):
    job.wait_steps(job.steps() + 3)
    check("every word right" in job.finish(), "the job did not verify its memory")


def introduction():
    job, lease = counting(name="train", CUDAW_TURNS_CLASS="interactive", CUDAW_TURNS_WEIGHT="3")
    equal(lease.introduction[0], "turns 1", "the first line")
    for word, value in (("name", "train"), ("pid", str(job.pid)), ("class", "interactive"),
                        ("weight", "3"), ("state", "running"), ("id", job.status()["id"])):
        equal(lease.said(word), value, f"the value of {word}")
    check("counter" in lease.said("command"), "the command is another one")
    mapped, total = (int(word) for word in lease.said("need").split()[1:])
    while mapped < SIZE_MIB * MIB:
        mapped, total = lease.need()
    equal(total, mapped, "what a running job needs")
    finish(job)


def turns():
    job, lease = counting()
    for size in (10 * MIB, EVERYTHING):
        freed = lease.take(size)
        check(freed >= min(size, SIZE_MIB * MIB), f"{freed} bytes were freed")
        left = lease.last("mapped")
        # What it has freed would count twice if it still came behind that.
        words = [line.split()[0] for line in lease.seen if line.startswith(("freed ", "need ", "mapped "))]
        equal(words[-3:], ["freed", "need", "mapped"], "the last words of its memory")
        mapped, total = lease.need()
        equal((mapped, total), (left, left + freed), "the need of a job that is out")
        equal(lease.until("state"), "waiting", "the state that it says")
        lease.until("want")
        job.check_still()
        lease.fill()
        equal(lease.until("state"), "running", "the state that it says")
        job.wait_steps(job.steps() + 3)
    finish(job)


def a_released_job_needs_room_for_its_context():
    job, lease = counting()
    left = lease.take(10 * MIB) and lease.last("mapped")
    _, total = lease.need()
    cudaw_ok("pause", "--release", "all", job.pid)
    mapped, with_context = lease.need()
    while mapped:
        mapped, with_context = lease.need()
    check(with_context >= total + CONTEXT_MIB * MIB,
          f"without a context it needs {with_context - total} more")
    cudaw_ok("resume", "--no-wait", job.pid)
    lease.fill()
    while (need := lease.need()) != (total, total):
        check(need[1] in (total, with_context), f"it needs {need}")
    finish(job)


def gives_context(lease):
    """What it says of its context."""
    lease.seen.clear()
    lease.send(f"yield {EVERYTHING} 30000 context")
    said = lease.until("context")
    equal(lease.until("end"), "ok", "the end of the yield")
    return said


def a_yield_takes_the_context():
    """Of a job that runs, and of one that is out already; it comes back with the memory."""
    daemon = Daemon()
    job, lease = counting(daemon=daemon, CUDAW_TURNS_CONTEXT_AFTER="7", **knows_gpu())
    equal(lease.said("context-after"), "7", "when its context may go")
    for out in (False, True):
        lease.take(EVERYTHING)
        total = lease.need()[1]
        if not out:
            lease.fill()
            lease.need()
        equal(gives_context(lease), "out", "its context")
        equal(process_used(job.pid) or 0, 0, "what it has on the GPU")
        with_context = lease.need()[1]
        check(with_context - total in range(CONTEXT_MIB * MIB, (CONTEXT_MIB + 4) * MIB),
              f"with its context it needs {with_context - total} more")
        job.check_still()
        if out:     # room for a part of its memory only
            lease.send(f"room {4 * MIB}")
            equal(lease.until("context"), "restored", "its context, of a job that does not run yet")
            job.check_still()
        lease.fill()
        equal("context restored" in lease.seen, not out, "whether the end of the fill says so")
        equal(lease.need(), (total, total), "its need when it runs")
        job.wait_steps(job.steps() + 3)
    lease.hang_up()
    equal(daemon.member().said("context"), "restored", "what another daemon hears of it")
    daemon.end()
    finish(job)


def a_context_that_cannot_go_stays():
    """NVML does not know the process, or the driver fails. The job comes back as ever."""
    for env, why in (({}, "NVML does not say"),
                     ({**knows_gpu(), "CUDAW_SIM_FAULT": "cuCheckpointProcessCheckpoint:1:801"}, "NOT_SUPPORTED")):
        job, lease = counting(**env)
        said = gives_context(lease)
        check(said.startswith("stays ") and why in said, f"it says of its context: {said}")
        check(process_used(job.pid) >= CONTEXT_MIB, "its context is gone")
        lease.fill()
        finish(job)


class Orders:
    """A job that allocates as it is told, and its connection to the stand-in."""

    def __init__(self, *args, **options):
        self.job, self.lease = member("orders", *args, first=("alloc 4",), **options)
        self.job.wait_line("alloc: ok")
        self.answered = len(self.job.lines)

    def send(self, order):
        self.job.process.stdin.write(f"{order}\n")

    def answer(self):
        """Its next line."""
        self.job.until(lambda: len(self.job.lines) > self.answered, 20, "the answer to an order")
        self.answered += 1
        return self.job.lines[self.answered - 1]

    def obeys(self, order, expected):
        self.send(order)
        equal(self.answer(), expected, f"the answer to {order}")

    def silent(self, seconds=0.2):
        time.sleep(seconds)
        equal(self.job.lines[self.answered:], [], "what it answers while it waits")

    def waits(self, order, size):
        """It has to wait for memory; returns the serial."""
        self.send(order)
        serial, asked = self.lease.grow()
        equal(asked, size, f"the bytes of {order}")
        self.silent()
        return serial

    def interrupt(self):
        """Run the handler of SIGALRM in the call that waits."""
        self.silent()
        self.job.send(signal.SIGALRM)

    def finish(self, helped=lambda: None):
        self.send("check")
        helped()
        equal(self.answer(), "check: every word right", "its memory")
        equal(self.job.result().splitlines()[-1], "orders: done", "the last line")


def growth_waits_for_room():
    for how in ("alloc", "async", "create", "pitch", "array"):
        orders = Orders()
        other, _ = hog()
        orders.lease.send(f"try {orders.waits(f'{how} 64', 64 * MIB)}")
        serial, _ = orders.lease.grow()     # there was no room
        orders.silent()
        orders.lease.send(f"no {serial}")
        equal(orders.answer(), f"{how}: error 2", "an allocation that is refused")
        serial = orders.waits(f"{how} 64", 64 * MIB)
        other.discard()
        orders.lease.send(f"try {serial}")
        equal(orders.answer(), f"{how}: ok", "an allocation that has room")
        orders.finish()


APART = 2   # seconds: QUICK_MS of checkpoint/gate/growth.c


def growth_that_room_does_not_help():
    """What is missing may be host memory: it fails after 10 s, but not if it has waited for room. The tries, all of
    which are answered at once, become fewer."""
    orders = Orders()
    other, _ = hog()

    def tries(seconds):
        """How many since two were that far apart: the 10 s begin again then, as where the machine stood still."""
        before, count = time.monotonic(), 0
        end = before + seconds
        while time.monotonic() < end and len(orders.job.lines) == orders.answered:
            # After the last try the answer may come late, and then it asks for no other.
            if not orders.lease.grown and not select.select([orders.lease.socket], [], [], 0.2)[0]:
                continue
            serial, _ = orders.lease.grow()
            orders.lease.send(f"try {serial}")
            now = time.monotonic()
            count = 1 if now - before > APART else count + 1
            before = now
        return count

    orders.send("alloc 64")
    tries(7)
    serial, _ = orders.lease.grow()
    orders.silent(2.5)
    orders.lease.send(f"try {serial}")
    tries(7)
    orders.silent()
    count = tries(100)      # it ends much sooner, if no two tries are 2 s apart
    check(count < 100, f"it has asked {count} times")
    check(len(orders.job.lines) > orders.answered, "it does not end")
    equal(orders.answer(), "alloc: error 2", "an allocation that room does not help")
    other.discard()
    orders.obeys("alloc 64", "alloc: ok")
    orders.finish()


def it_has_a_second_to_yield(orders):
    """As the daemon says, and the time in which it is stopped, or frozen, does not count."""
    orders.lease.send(f"yield {EVERYTHING} 1000")
    began = time.monotonic()
    orders.job.until(lambda: '"state": "pausing"' in cudaw_ok("ps", "--json"), 10, "it comes to rest")
    orders.job.send(signal.SIGSTOP)
    orders.job.until(lambda: is_stopped(orders.job.pid), 10, "it is stopped")
    stopped = time.monotonic()
    time.sleep(1.2)
    began += time.monotonic() - stopped
    orders.job.send(signal.SIGCONT)
    check(orders.lease.until("end").startswith("timeout"), f"the job answered {orders.lease.seen}")
    had = time.monotonic() - began
    check(had > 0.85, f"it had {had} s")


def growth_during_a_capture():
    """It says so, as the job cannot come to rest; and the capture is good afterwards."""
    orders = Orders()
    other, _ = hog()
    orders.send("capture 64")
    serial, asked = orders.lease.pinned()
    equal(asked, 64 * MIB, "the bytes that it asks for")
    orders.silent()
    it_has_a_second_to_yield(orders)
    orders.lease.send(f"no {serial}")
    equal(orders.answer(), "capture: error 2", "an allocation that is refused")
    orders.send("capture 64")
    serial, _ = orders.lease.pinned()
    other.discard()
    orders.lease.send(f"try {serial}")
    equal(orders.answer(), "capture: ok", "an allocation that has room")
    orders.lease.take(EVERYTHING)
    orders.lease.fill()
    orders.finish()


def growth_beyond_a_memory_limit():
    """It fails at once, and asks nobody; a turn leaves the limit as it is."""
    orders = Orders(CUDAW_MEM="32M")
    for _ in range(2):
        for how in ("alloc", "async", "create", "pitch", "array"):
            orders.obeys(f"{how} 64", f"{how}: error 2")
        orders.lease.take(EVERYTHING)
        orders.lease.fill()
    equal(orders.lease.grown, [], "what it has asked for")
    orders.obeys("alloc 16", "alloc: ok")
    orders.finish()


def growth_that_is_the_first_need():
    """A GPU that is full before the job has any memory: even its context waits."""
    other, _ = hog()
    job, lease = member("orders", first=("alloc 4",))
    serial, asked = lease.grow()
    check(asked >= 64 * MIB, f"it asks for {asked} bytes")
    time.sleep(0.2)
    equal(job.lines, [], "what it says while it waits")
    other.discard()
    lease.send(f"try {serial}")
    job.wait_line("alloc: ok")
    check("orders: done" in job.result(), "the job did not end well")


def without_a_daemon():
    """No allocation waits: not with no daemon, nor with one that does not welcome the job. Looks are counted, as the
    machine may stand still meanwhile: a new daemon would be waited for in 500 of them."""
    for daemon in (None, Daemon()):
        job = Job("orders", env={"CUDAW_TURNS": "user"})
        job.process.stdin.write("alloc 4\n")
        job.wait_line("alloc: ok")
        silent = daemon.joined() if daemon else None
        other, _ = hog()
        looks = []
        job.process.stdin.write("alloc 64\n")
        job.until(lambda: looks.append(1) or "alloc: error 2" in job.lines, 60, "the allocation fails")
        check(len(looks) < 400, f"the failure took {len(looks)} looks")
        other.discard()
        job.process.stdin.write("alloc 64\ncheck\n")
        job.wait_line("check: every word right")
        job.result()
        if silent:
            silent.hang_up()
            daemon.end()


def unless_it_is_asked_to():
    daemon = Daemon()
    for env in ({}, {"CUDAW_TURNS": "off"}):
        job = Job("counter", "--steps", 1000000, "--step-ms", 10, env=env)
        job.wait_steps(3)
        time.sleep(0.3)
        equal(select.select([daemon.socket], [], [], 0)[0], [], "the jobs that connect")
        finish(job)
    daemon.end()


def refuse(daemon, answer):
    """The next job that joins."""
    connection = daemon.joined()
    connection.send(f"end {answer}")
    while line := connection.lines.readline():
        check(line.startswith("need "), f"the job says {line!r} then")


def refused():
    """A version that the daemon does not know is not tried again; others are."""
    daemon = Daemon()
    for answer, again in (("invalid version 1 is not known", False), ("busy too many jobs", True)):
        job = Job("counter", "--steps", 1000000, "--step-ms", 10,
                  env={"CUDAW_TURNS": daemon.path, "CUDAW_LOG": "warn"})
        refuse(daemon, answer)
        if again:
            daemon.member()
        else:
            equal(select.select([daemon.socket], [], [], 1)[0], [], f"who comes again after 'end {answer}'")
        check(answer in job.stderr(), f"the log has no '{answer}'")
        equal(job.stderr().count("refuses"), 1, "the warnings")
        finish(job)
    daemon.end()


def left_for_good():
    """What other clients ask for afterwards is told to them alone."""
    job, lease = counting()
    lease.send("end invalid not expected here")
    while lease.lines.readline():
        pass
    job.pause()
    job.check_still()
    job.resume()
    other = Lease(job)      # in the place of the daemon
    other.take(EVERYTHING)
    equal([line for line in other.seen if line.startswith("need ")], [], "what it hears of the job's needs")
    other.fill()
    other.hang_up()
    finish(job)


def refused_while_an_allocation_waits():
    """The allocation fails as natively, and the daemon is not asked again at once."""
    daemon = Daemon()
    job = Job("orders", env={"CUDAW_TURNS": daemon.path})
    job.process.stdin.write("alloc 4\n")
    refuse(daemon, "busy too many jobs")
    job.wait_line("alloc: ok")
    other, _ = hog()
    job.process.stdin.write("alloc 64\n")
    asked = 0

    def is_answered():
        nonlocal asked
        while select.select([daemon.socket], [], [], 0)[0]:
            refuse(daemon, "busy too many jobs")
            asked += 1
            check(asked < 20, "it asks again and again")
        return "alloc: error 2" in job.lines
    job.until(is_answered, 20, "the allocation fails")
    other.discard()
    job.process.stdin.write("check\n")
    job.wait_line("check: every word right")
    job.discard()
    daemon.end()


def the_daemon_of_another_user():
    if os.geteuid():
        raise Skip("takes root")
    path = os.path.join(SCRATCH, "other.sock")
    daemon = Daemon(path)
    done, ready = os.pipe()
    listening = os.fork()
    if not listening:
        try:
            os.setuid(65534)
            daemon.socket.listen(16)    # SO_PEERCRED is who did that last
            os.write(ready, b".")
            signal.pause()
        finally:
            os._exit(1)
    os.close(ready)
    try:
        equal(os.read(done, 1), b".", "what the other user says when it listens")
        job = Job("counter", "--steps", 1000000, "--step-ms", 10,
                  env={"CUDAW_TURNS": path, "CUDAW_LOG": "warn"})
        job.until(lambda: "another user" in job.stderr(), 10, "the warning")
        connection = daemon.socket.accept()[0]
        equal(connection.recv(100), b"", "what it tells the other user")
    finally:
        os.kill(listening, signal.SIGKILL)
        os.waitpid(listening, 0)
        os.close(done)
    finish(job)
    daemon.end()


def the_daemon_comes_and_goes():
    """While the job runs, while it is out, and while an allocation waits."""
    daemon = Daemon()
    orders = Orders(daemon=daemon)
    orders.lease.hang_up()
    orders.lease = daemon.member()
    orders.lease.take(EVERYTHING)
    orders.send("alloc 8")
    orders.lease.until("want")
    orders.lease.hang_up()
    equal(orders.answer(), "alloc: ok", "the job whose daemon has gone")
    orders.lease = daemon.member()
    other, _ = hog()
    orders.waits("alloc 64", 64 * MIB)
    orders.lease.hang_up()
    daemon.end()
    equal(orders.answer(), "alloc: error 2", "an allocation that waits for no daemon any more")
    other.discard()
    orders.finish()


def growth_that_a_new_daemon_sees_first():
    """The job tries seldom to find a daemon that has been away for long; an allocation tries at once."""
    daemon = Daemon()
    orders = Orders(daemon=daemon)
    orders.lease.hang_up()
    daemon.end()
    time.sleep(4)       # tries: 0.1 s, 0.3 s, ... 3.1 s, 6.3 s
    other, _ = hog()
    daemon = Daemon()
    orders.send("alloc 64")
    orders.lease = daemon.member()
    serial, asked = orders.lease.grow()
    equal(asked, 64 * MIB, "the bytes that it asks for")
    other.discard()
    orders.lease.send(f"try {serial}")
    equal(orders.answer(), "alloc: ok", "an allocation that has room")
    daemon.end()
    orders.finish()


def growth_that_another_daemon_serves():
    daemon = Daemon()
    orders = Orders(daemon=daemon)
    other, _ = hog()
    orders.waits("alloc 64", 64 * MIB)
    orders.lease.hang_up()
    daemon.end()
    orders.silent(3)
    daemon = Daemon()
    orders.lease = daemon.member()
    serial, asked = orders.lease.grow()
    equal(asked, 64 * MIB, "the bytes that it asks for")
    other.discard()
    orders.lease.send(f"try {serial}")
    equal(orders.answer(), "alloc: ok", "an allocation that has room")
    daemon.end()
    orders.finish()


def the_daemon_hangs():
    """While an allocation waits, and while the job is out; not while it answers."""
    daemon = Daemon()
    orders = Orders(daemon=daemon)
    other, _ = hog()
    orders.waits("alloc 64", 64 * MIB)
    for _ in range(6):
        equal(orders.lease.lines.readline(), "ping\n", "what it says of the silence")
        orders.lease.send("pong")
    orders.silent()
    equal(orders.answer(), "alloc: error 2", "an allocation that waits for a daemon that hangs")
    other.discard()
    orders.lease = daemon.member()
    orders.lease.take(EVERYTHING)
    orders.send("alloc 8")
    equal(orders.answer(), "alloc: ok", "the job that is out when its daemon hangs")
    daemon.member()
    daemon.end()
    orders.finish()


def the_daemon_hangs_while_it_leads():
    """The job has its memory back, or is at rest, and is not told to go on as the others do."""
    daemon = Daemon()
    orders = Orders(daemon=daemon)

    def goes_on():
        start = time.monotonic()
        orders.send("alloc 8")
        orders.silent()
        equal(orders.answer(), "alloc: ok", "the job whose daemon hangs")
        took = time.monotonic() - start
        check(took < 20, f"it goes on after {took:.1f} s")

    orders.lease.take(EVERYTHING)
    orders.lease.send(f"room {EVERYTHING} hold")
    equal(orders.lease.until("held"), "drained 0", "what it says when all is back")
    equal(orders.lease.seen[-2], "filled", "the line before it")
    goes_on()
    orders.lease = daemon.member()
    orders.lease.send(f"yield {EVERYTHING} 100000 hold")
    while orders.lease.until("held") != "drained 0":
        pass
    goes_on()
    daemon.member()
    daemon.end()
    orders.finish()


def a_yield_that_crosses_the_end_of_a_fill():
    """It calls the fill off, or comes too late for that; then the job answers both."""
    daemon = Daemon()
    orders = Orders(daemon=daemon)
    lease = orders.lease
    lease.take(EVERYTHING)
    late = 0
    for i in range(30):
        lease.send(f"room {EVERYTHING} hold")
        lease.until("held")
        lease.seen.clear()
        lease.send("commit")
        time.sleep(i % 10 / 1e4)
        lease.send(f"yield {EVERYTHING} 100000 hold")
        end = lease.until("end")
        if "filled" in lease.seen:
            late += 1
            equal(end, "ok", "the end of the fill")
            while lease.until("held") != "drained 0":
                pass
            lease.send("commit")
            end = lease.until("end")
        equal(end, "ok", "the end of the yield")
    print(f"# {late} of 30 came too late")
    lease.fill()
    orders.finish()
    daemon.end()


def descriptors_beside_tries(job):
    """Without those that its tries to connect take for a moment."""
    looks = []
    for _ in range(10):
        looks.append(kept_descriptors(job.pid))
        time.sleep(0.01)
    return {number for look in looks for number, link in look.items()
            if not link.startswith("socket:") or all(other.get(number) == link for other in looks)}


def no_descriptor_is_left():
    """The job runs as without the daemon, and joins when it has a descriptor."""
    path = os.path.join(SCRATCH, "later.sock")
    job = Job("counter", "--steps", 1000000, "--step-ms", 10,
              env={"CUDAW_TURNS": path, "CUDAW_LOG": "warn"})
    job.wait_steps(3)
    until(lambda: job.status()["no_turns"] == f"no daemon ({path}): No such file or directory", 5,
          "ps says why it takes no turns")
    most = max(descriptors_beside_tries(job)) + 1
    saved = resource.prlimit(job.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(job.pid, resource.RLIMIT_NOFILE, (most, saved[1]))
    daemon = Daemon(path)
    before = job.steps()
    equal(select.select([daemon.socket], [], [], 1)[0], [], "the connections without a descriptor")
    job.wait_steps(before + 1)
    resource.prlimit(job.pid, resource.RLIMIT_NOFILE, saved)
    lease = daemon.member()
    check(lease.take(EVERYTHING) > 0, "nothing was freed")
    lease.fill()
    equal(job.stderr().count("turns: "), 1, "the warnings")
    finish(job)
    daemon.end()


def another_client_has_the_lease():
    """The daemon would not hear of what it does."""
    path = os.path.join(SCRATCH, "late.sock")
    job = Job("counter", "--mib", 8, "--allocs", 4, "--verify", 1, "--steps", 1000000, "--step-ms", 10,
              env={"CUDAW_TURNS": path})
    job.wait_steps(3)
    other = Lease(job)
    other.take(EVERYTHING)
    other.fill()
    daemon = Daemon(path)
    equal(select.select([daemon.socket], [], [], 6)[0], [], "the connections beside another lease")
    other.hang_up()
    lease = daemon.member()
    lease.take(EVERYTHING)
    lease.fill()
    finish(job)
    daemon.end()


def it_is_left_alone():
    """It is not asked again at once for what it could not do."""
    job, lease = counting()
    daemon = Daemon()
    begun = time.monotonic()
    lease.send("end timeout it could not rest with its job")
    check(select.select([daemon.socket], [], [], 60)[0], "it does not come back")
    later = time.monotonic() - begun
    check(later > 3, f"a job that is let go comes back after {later} s")
    daemon.member()
    finish(job)
    daemon.end()


def a_fork_beside_its_connection():
    """The daemon hears that the job ends, though a child of it lives on."""
    alive = os.path.join(SCRATCH, "alive")
    with open(alive, "w", encoding="utf-8"):
        pass
    daemon = Daemon()
    job = Job("counter", "--steps", 1000000, "--step-ms", 10,
              env={"CUDAW_TURNS": "user", "TEST_FORKS": alive,
                   "LD_PRELOAD": os.path.join(BUILD, "tests", "preload", "forks.so")})
    first = Member(daemon.socket.accept()[0])
    equal(first.lines.readline(), "", "what the job says on a connection that a child has")
    lease = daemon.member()
    job.wait_steps(3)
    job.send(signal.SIGKILL)
    job.wait_end()
    lease.socket.settimeout(PATIENCE)
    with contextlib.suppress(ConnectionResetError):     # it has not read all that was said
        while lease.lines.readline():
            pass
    os.unlink(alive)
    job.discard()
    daemon.end()


def the_users_pause():
    """It counts beside the lease; a resume of a job without the lease says that it wants to run."""
    orders = Orders()
    lease, job = orders.lease, orders.job
    for when in ("before", "after"):
        for release in ("all", "memory"):
            if when == "after":
                lease.take(EVERYTHING)
            cudaw_ok("pause", "--release", release, job.pid)
            if when == "before":
                while lease.until("state") != "paused":
                    pass
                lease.take(EVERYTHING)
                check("state pausing" not in lease.seen, f"it is paused all the time: {lease.seen}")
            orders.send("alloc 2")
            lease.quiet("want", 0.2)
            equal(job.state(), "paused", "the state of a job that its user has paused")
            cudaw_ok("resume", "--no-wait", job.pid)
            lease.until("want")
            lease.fill()
            equal(orders.answer(), "alloc: ok", "the job that was paused")
    lease.take(EVERYTHING)
    lease.quiet("want", 0.2)
    cudaw_ok("resume", "--no-wait", job.pid)     # though its program makes no call
    lease.until("want")
    lease.fill()
    lease.take(EVERYTHING)
    lease.quiet("want", 0.2)
    orders.finish(lambda: (lease.until("want"), lease.fill()))


def idle_and_busy():
    orders = Orders()
    lease = orders.lease
    lease.quiet("idle", 0.4)
    lease.send("watch")
    check(int(lease.until("idle")) >= IDLE_MS, f"it says {lease.seen[-1]} too early")
    lease.quiet("busy", 0.3)
    orders.obeys("alloc 2", "alloc: ok")
    lease.until("busy")
    lease.until("idle")
    lease.send("idle 1000")     # longer than it is held up before the kernel begins
    orders.obeys("spin", "spin: ok")
    lease.until("busy")
    lease.quiet("idle", 1.5)    # a kernel runs, and no call comes
    lease.send(f"idle {IDLE_MS}")
    orders.obeys("end", "end: ok")
    lease.until("idle")
    for command in ("trim", "pause"):
        cudaw_ok(command, orders.job.pid)
        cudaw_ok("resume", orders.job.pid)
        lease.until("busy")
        lease.until("idle")
    lease.take(EVERYTHING)
    lease.quiet("want", 0.3)
    equal(orders.job.state(), "waiting", "the state of an idle job that is out")
    orders.send("check")
    lease.until("want")
    lease.fill()
    equal(orders.answer(), "check: every word right", "its memory")
    lease.until("idle")
    lease.send("unwatch")
    orders.obeys("alloc 2", "alloc: ok")
    lease.until("busy")
    lease.quiet("idle", 0.4)
    orders.finish()


def how_soon_it_is_idle_changes():
    orders = Orders()
    lease = orders.lease
    lease.send("idle 1500")
    lease.send("watch")
    check(int(lease.until("idle")) >= 1500, f"it says {lease.seen[-1]} too early")
    lease.send("idle 3600000")
    orders.obeys("alloc 2", "alloc: ok")
    lease.until("busy")
    lease.send(f"idle {IDLE_MS}")     # it has waited for less than an hour by then
    check(int(lease.until("idle")) >= IDLE_MS, f"it says {lease.seen[-1]} too early")
    orders.finish()


def steps_are_not_idle():
    job, lease = counting()
    lease.send("idle 1000")     # longer than it is held up between two of them
    lease.send("watch")
    lease.quiet("idle", 1.5)
    finish(job)


def growth_beside_other_things():
    """The user's pause, a yield, threads, and ends of the wait that nobody expects."""
    orders = Orders()
    lease, job = orders.lease, orders.job
    other, _ = hog()
    serial = orders.waits("alloc 64", 64 * MIB)
    job.pause()
    lease.send(f"try {serial}")
    orders.silent()
    cudaw_ok("resume", job.pid)
    serial, _ = lease.grow()
    equal(job.state(), "waiting", "the state after it, as its allocation waits")
    lease.take(EVERYTHING)
    lease.until("want")
    lease.send(f"try {serial}")
    orders.silent()
    lease.fill()
    serial, _ = lease.grow()
    lease.send("no 4000000000\nno x\nno\nyields")
    orders.silent()
    lease.send(f"no {serial}")
    equal(orders.answer(), "alloc: error 2", "what is refused")

    for i in range(3):      # more often than there are slots would take long
        left = serial
        orders.send("leave 64")
        serial, _ = lease.grow()
        equal(f"forget {left}" in lease.seen, i > 0, f"whether it says that {left} waits no more")
        orders.interrupt()
        equal(orders.answer(), "leave: left", "a call that a signal handler leaves")
    lease.send(f"try {serial}")
    orders.send("fork 64")
    serial, _ = lease.grow()
    orders.interrupt()
    equal(orders.answer(), "child: error 3", "the call in a child that a signal handler forked")
    lease.send(f"no {serial}")
    equal(orders.answer(), "fork: error 2", "the call in the parent")
    other.discard()
    orders.finish()


def growth_of_a_thread_that_is_cancelled():
    """No driver call is a cancellation point, and so this wait is none."""
    orders = Orders()
    other, _ = hog()
    orders.obeys("thread 64", "thread: begun")
    serial, _ = orders.lease.grow()
    orders.obeys("cancel", "cancel: 0")
    orders.send("join")
    orders.silent()
    orders.lease.send(f"no {serial}")
    check(orders.answer() in ("join: result 2", "join: cancelled -1"), "the thread ends")
    orders.job.discard()
    other.discard()


def growth_of_a_signal_handler():
    """It takes the place of the wait that it interrupts, which then asks again."""
    orders = Orders()
    other, _ = hog()
    orders.send("nested 64")
    first, _ = orders.lease.grow()
    orders.interrupt()
    second, asked = orders.lease.grow()
    equal(asked, 2 * MIB, "what the handler asks for")
    other.discard()
    orders.lease.send(f"try {first}")
    orders.silent()
    orders.lease.send(f"try {second}")
    equal(orders.answer(), "nested: ok", "both")
    orders.finish()


def the_end_of_a_job_that_waits():
    """SIGTERM's handler calls exit(); SIGINT's lets the program get on."""
    for sig, status in ((signal.SIGTERM, 7), (signal.SIGINT, 0)):
        orders = Orders("--term-exit", 7)
        other, _ = hog()
        serial = orders.waits("alloc 64", 64 * MIB)
        orders.job.send(sig)
        if sig == signal.SIGINT:
            equal(orders.lease.until("forget"), str(serial), "the allocation that waits no more")
            equal(orders.answer(), "alloc: error 2", "the allocation that a signal ends")
        equal(orders.job.wait_end(), status, "its exit status")
        orders.job.alive.remove(orders.job)
        other.discard()


def a_process_image_has_no_daemon():
    daemon = Daemon()
    orders = Orders(daemon=daemon)
    asks = Lease(orders.job)
    path = os.path.join(SCRATCH, "image")
    asks.send(f"snapshot pause image {path}")
    equal(asks.until("end"), "ok", "the end of the snapshot")
    check(orders.lease.until("end").startswith("busy"), "the daemon hears nothing of the image")
    equal(orders.lease.lines.readline(), "", "what follows on the connection")
    equal(select.select([daemon.socket], [], [], 0.5)[0], [], "the connections meanwhile")
    asks = Lease(orders.job)
    asks.send(f"done {path}")
    equal(asks.until("end"), "ok", "the end of the request")
    daemon.member()
    orders.finish()
    daemon.end()


def a_yield_that_cannot_be():
    """Not because of other processes: the job stays, as the daemon knows when to ask again."""
    orders = Orders()
    orders.obeys("export", "export: ok")
    for _ in range(2):
        orders.lease.send(f"yield {EVERYTHING}")
        said = orders.lease.until("end")
        check(said.startswith("unsupported") and "cuMemGetHandleForAddressRange" in said, f"it says {said}")
        equal(orders.job.status()["no_turns"], None, "why it takes no turns")
    orders.finish()


def a_process_that_others_wait_for():
    """It leaves, and comes back at the same moments as the others, who may not have joined."""
    daemon = Daemon()
    job = Job("rank_kernels", "--ranks", 2, "--shape", 0, "--steps", 100000000, "--step-ms", 10,
              env={"CUDAW_TURNS": daemon.path, "CUDAW_LOG": "warn"})
    ranks = [daemon.member() for _ in range(2)]
    job.wait_steps(5)

    def leave_and_meet():
        """How many come at once when it is time, as far as this process, which may be held up, can tell."""
        time.sleep((MEETINGS_S * 1.5 - time.monotonic() % MEETINGS_S) % MEETINGS_S)
        meeting = (time.monotonic() // MEETINGS_S + 1) * MEETINGS_S
        for rank in ranks:
            rank.send(f"yield {MIB}")
            check(rank.until("end").startswith("unsupported"), f"the process answers {rank.seen}")
            while rank.lines.readline():
                pass
        punctual = 0
        for i in range(2):
            ranks[i] = daemon.member()
            check(time.monotonic() >= meeting, "one joins before it is time")
            punctual += time.monotonic() % MEETINGS_S < MEETINGS_S / 3
        return punctual
    check(any(leave_and_meet() == 2 for _ in range(10)), "they join at other moments")
    check("other processes wait for its kernels" in job.stderr(), "it does not say why it leaves")
    check("every rank right" in job.finish(), "not every rank verified its result")
    daemon.end()


GROWTH_OF_A_HANDLER = growth_of_a_signal_handler
if TSAN:
    GROWTH_OF_A_HANDLER = skipped(growth_of_a_signal_handler,
                                  "the simulated driver allocates, and TSan reports that in a handler")

main(introduction, turns, growth_waits_for_room, growth_that_room_does_not_help, growth_during_a_capture,
     growth_beyond_a_memory_limit,
     a_released_job_needs_room_for_its_context, a_yield_takes_the_context,
     a_context_that_cannot_go_stays, growth_that_is_the_first_need, without_a_daemon,
     unless_it_is_asked_to, refused, left_for_good, refused_while_an_allocation_waits, the_daemon_of_another_user,
     the_daemon_comes_and_goes,
     growth_that_a_new_daemon_sees_first, growth_that_another_daemon_serves, the_daemon_hangs,
     the_daemon_hangs_while_it_leads, a_yield_that_crosses_the_end_of_a_fill, another_client_has_the_lease,
     it_is_left_alone, unsanitized(a_fork_beside_its_connection), no_descriptor_is_left, the_users_pause,
     idle_and_busy, how_soon_it_is_idle_changes, steps_are_not_idle, growth_beside_other_things,
     growth_of_a_thread_that_is_cancelled, GROWTH_OF_A_HANDLER, the_end_of_a_job_that_waits,
     a_process_image_has_no_daemon, a_yield_that_cannot_be, a_process_that_others_wait_for)
