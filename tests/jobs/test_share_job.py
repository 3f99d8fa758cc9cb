#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The job's side of cudawd (CUDAW_SHARE), with a stand-in for the daemon."""
import os
import resource
import select
import signal
import time

from simlib import MIB, SCRATCH, TSAN, skipped
from gpulib import PATIENCE, Job, Skip, check, cudaw, cudaw_ok, equal, hog, main
from lease import EVERYTHING, Lease
from sharelib import IDLE_MS, Daemon, member

SIZE_MIB = 48


def counting(**env):
    job, lease = member("counter", "--mib", SIZE_MIB, "--allocs", 12, "--verify", 1, "--steps", 1000000,
                        "--step-ms", 2, **env)
    job.wait_steps(3)
    return job, lease


def finish(job):
    job.wait_steps(job.steps() + 3)
    check("every word right" in job.finish(), "the job did not verify its memory")


def introduction():
    job, lease = counting(name="train", CUDAW_SHARE_CLASS="interactive", CUDAW_SHARE_WEIGHT="3")
    equal(lease.introduction[0], "share 1", "the first line")
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
    for size in (20 * MIB, EVERYTHING):
        freed = lease.take(size)
        check(freed >= min(size, SIZE_MIB * MIB), f"{freed} bytes were freed")
        left = lease.last("mapped")
        mapped, total = lease.need()
        equal((mapped, total), (left, left + freed), "the need of a job that is out")
        equal(lease.until("state"), "waiting", "the state that it says")
        lease.until("want")
        job.check_still()
        lease.fill()
        equal(lease.until("state"), "running", "the state that it says")
        job.wait_steps(job.steps() + 3)
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
    """No allocation waits: not with no daemon, nor with one that does not welcome the job."""
    for daemon in (None, Daemon()):
        job = Job("orders", env={"CUDAW_SHARE": "user"})
        job.process.stdin.write("alloc 4\n")
        job.wait_line("alloc: ok")
        silent = daemon.joined() if daemon else None
        other, _ = hog()
        start = time.monotonic()
        job.process.stdin.write("alloc 64\n")
        job.wait_line("alloc: error 2")
        took = time.monotonic() - start
        check(took < (4 if silent else 1) * PATIENCE, f"the failure took {took:.1f} s")
        other.discard()
        job.process.stdin.write("alloc 64\ncheck\n")
        job.wait_line("check: every word right")
        job.result()
        if silent:
            silent.hang_up()
            daemon.end()


def unless_it_is_asked_to():
    daemon = Daemon()
    for env in ({}, {"CUDAW_SHARE": "off"}):
        job = Job("counter", "--steps", 1000000, "--step-ms", 2, env=env)
        job.wait_steps(3)
        time.sleep(0.3)
        equal(select.select([daemon.socket], [], [], 0)[0], [], "the jobs that connect")
        finish(job)
    daemon.end()


def refused():
    """A version that the daemon does not know is not tried again; others are."""
    daemon = Daemon()
    for answer, again in (("invalid version 1 is not known", False), ("busy too many jobs", True)):
        job = Job("counter", "--steps", 1000000, "--step-ms", 2,
                  env={"CUDAW_SHARE": daemon.path, "CUDAW_LOG": "warn"})
        first = daemon.joined()
        first.send(f"end {answer}")
        equal(first.lines.readline(), "", "what the job sends then")
        came = select.select([daemon.socket], [], [], 1)[0]
        equal(bool(came), again, f"whether it comes again after 'end {answer}'")
        if came:
            daemon.member()
        check(answer in job.stderr(), f"the log has no '{answer}'")
        equal(job.stderr().count("refuses"), 1, "the warnings")
        finish(job)
    daemon.end()


def the_daemon_of_another_user():
    if os.geteuid():
        raise Skip("takes root")
    path = os.path.join(SCRATCH, "other.sock")
    daemon = Daemon(path)
    listening = os.fork()
    if not listening:
        os.setuid(65534)
        daemon.socket.listen(16)    # SO_PEERCRED is who did that last
        time.sleep(60)
        os._exit(0)
    time.sleep(0.1)
    job = Job("counter", "--steps", 1000000, "--step-ms", 2,
              env={"CUDAW_SHARE": path, "CUDAW_LOG": "warn"})
    job.until(lambda: "another user" in job.stderr(), 10, "the warning")
    connection = daemon.socket.accept()[0]
    equal(connection.recv(100), b"", "what it tells the other user")
    os.kill(listening, signal.SIGKILL)
    os.waitpid(listening, 0)
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


def no_descriptor_is_left():
    """The job runs as without the daemon, and joins when it has a descriptor."""
    path = os.path.join(SCRATCH, "later.sock")
    job = Job("counter", "--steps", 1000000, "--step-ms", 2,
              env={"CUDAW_SHARE": path, "CUDAW_LOG": "warn"})
    job.wait_steps(3)
    most = max(int(number) for number in os.listdir(f"/proc/{job.pid}/fd")) + 1
    saved = resource.prlimit(job.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(job.pid, resource.RLIMIT_NOFILE, (most, saved[1]))
    daemon = Daemon(path)
    before = job.steps()
    equal(select.select([daemon.socket], [], [], 1)[0], [], "the connections without a descriptor")
    check(job.steps() > before, "the job does not go on")
    resource.prlimit(job.pid, resource.RLIMIT_NOFILE, saved)
    lease = daemon.member()
    check(lease.take(EVERYTHING) > 0, "nothing was freed")
    lease.fill()
    equal(job.stderr().count("share: "), 1, "the warnings")
    finish(job)
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
                lease.take(EVERYTHING)
            orders.send("alloc 2")
            lease.quiet("want", 0.2)
            equal(job.state(), "paused", "the state of a job that its user has paused")
            cudaw("resume", job.pid)
            lease.until("want")
            lease.fill()
            equal(orders.answer(), "alloc: ok", "the job that was paused")
    lease.take(EVERYTHING)
    lease.quiet("want", 0.2)
    cudaw("resume", job.pid)     # though its program makes no call
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
    orders.obeys("spin", "spin: ok")
    lease.until("busy")
    lease.quiet("idle", 0.6)    # a kernel runs, and no call comes
    orders.obeys("end", "end: ok")
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


def steps_are_not_idle():
    job, lease = counting()
    lease.send("watch")
    lease.quiet("idle", 0.5)
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
    job.resume()
    serial, _ = lease.grow()
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

    for _ in range(3):      # more often than there are slots would take long
        orders.send("leave 64")
        serial, _ = lease.grow()
        equal(orders.answer(), "leave: left", "a call that a signal handler leaves")
    lease.send(f"try {serial}")
    orders.send("fork 64")
    serial, _ = lease.grow()
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
        orders.waits("alloc 64", 64 * MIB)
        orders.job.send(sig)
        if sig == signal.SIGINT:
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


def a_process_that_others_wait_for():
    daemon = Daemon()
    job = Job("peers", "--ranks", 2, "--shape", 0, "--steps", 100000000, "--step-ms", 10,
              env={"CUDAW_SHARE": daemon.path})
    ranks = [daemon.member() for _ in range(2)]
    job.wait_steps(5)
    for rank in ranks:
        rank.send(f"yield {MIB}")
        check(rank.until("end").startswith("unsupported"), f"the process answers {rank.seen}")
        while rank.lines.readline():
            pass
    equal(select.select([daemon.socket], [], [], 0.7)[0], [], "the connections afterwards")
    check("every rank right" in job.finish(), "not every rank verified its result")
    daemon.end()


GROWTH_OF_A_HANDLER = growth_of_a_signal_handler
if TSAN:
    GROWTH_OF_A_HANDLER = skipped(growth_of_a_signal_handler,
                                  "the simulated driver allocates, and TSan reports that in a handler")

main(introduction, turns, growth_waits_for_room, growth_that_is_the_first_need, without_a_daemon,
     unless_it_is_asked_to, refused, the_daemon_of_another_user, the_daemon_comes_and_goes,
     no_descriptor_is_left, the_users_pause, idle_and_busy, steps_are_not_idle, growth_beside_other_things,
     growth_of_a_thread_that_is_cancelled, GROWTH_OF_A_HANDLER, the_end_of_a_job_that_waits,
     a_process_image_has_no_daemon, a_process_that_others_wait_for)
