#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Snapshots of a job whose first process does not use CUDA: a server, with an engine that does, and a client, all
connected by TCP.
"""
import ctypes
import glob
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import types

from restorelib import Snapshot, allow_stand_in, directory, need_criu, refused, stands_in
from simlib import HELD, REPOSITORY, held_back, hold, let_go, unsanitized
from detached import Detached
from gpulib import BUILD, CUDAW, Skip, base_environment, check, cudaw_ok, equal, jobs, main, until
import proclib

SYS_CLOCK_NANOSLEEP, SYS_CLONE3, SYS_PIDFD_GETFD, TCP_REPAIR = 230, 435, 438, 19
PR_CAPBSET_DROP, PR_SET_CHILD_SUBREAPER, CAP_NET_ADMIN = 24, 36, 12


def give_up_networks():
    """What this process starts has no CAP_NET_ADMIN."""
    ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_NET_ADMIN)


class Server(Detached):
    def __init__(self, *args, **options):
        super().__init__("server_job.py", *args, log_mode="a", **options)
        self.wait_steps(3)
        self.engine, self.port = (int(line.split()[1]) for line in self.lines()[:2])
        self.in_command = types.SimpleNamespace(pid=self.engine)
        self.pids = sorted([self.pid, *proclib.descendants(self.pid)])
        self.others = [pid for pid in self.pids if pid != self.engine]

    def state(self):
        return (jobs().get(self.engine) or {}).get("state")

    def states(self):
        """Of its processes, as in ps(1); without those that are gone, or that nobody has waited for."""
        self.process.poll()
        return "".join(sorted(set(proclib.state(pid) for pid in self.pids) - {"X", "Z"}))

    def goes_on(self):
        until(lambda: self.state() == "running", 30, "it runs")
        self.wait_steps(self.steps() + 3)

    def finish(self):
        os.kill(self.pid, signal.SIGINT)
        lines = self.wait_end(60)
        equal(lines[-1], "server_job: every answer right", "the last line")
        steps = [int(line.split()[1]) for line in lines if line.startswith("step ")]
        equal(steps, list(range(1, len(steps) + 1)), "the steps")

    def connections(self):
        """Ours of each of its TCP sockets that is connected."""
        for pid in self.pids:
            process = os.pidfd_open(pid)
            for fd, link in proclib.descriptors(pid).items():
                if not link.startswith("socket:"):
                    continue
                mine = ctypes.CDLL(None).syscall(SYS_PIDFD_GETFD, process, fd, 0)
                with socket.socket(fileno=mine) as found:
                    if found.family in (socket.AF_INET, socket.AF_INET6) and not found.getsockopt(
                            socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                        yield found
            os.close(process)

    def repair(self):
        """Leave its connections as a CRIU does that is killed."""
        count = 0
        for connection in self.connections():
            connection.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1)
            count += 1
        equal(count, 4, "the connections' ends")


def leave_session(leader):
    """
    Two children in the session of a process of this id, which has ended. By clone3(2), which root may give the id.
    """
    ids, (theirs, mine) = (ctypes.c_int * 1)(leader), os.pipe()
    arguments = struct.pack("<11Q", 0, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, ctypes.addressof(ids), 1, 0)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    if ctypes.CDLL(None).syscall(SYS_CLONE3, arguments, len(arguments)) == 0:
        os.setsid()
        for _ in range(2):
            if not (member := os.fork()):
                while True:
                    signal.pause()
            os.write(mine, f"{member}\n".encode())
        os._exit(0)
    os.waitpid(leader, 0)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 0)
    return [int(member) for member in os.read(theirs, 40).split()]


def has_ids_of_others(job, path):
    """It says of whom, rather of one that has not ended, and waits for a parent to wait for one that has."""
    needs = f"needs the id {job.pid}, which is that of the session or process group of process "
    members = sorted(leave_session(job.pid))
    for member, ends_by, state, how in (
            (members[0], "KILL", "Z", ": end it first"),
            (members[1], "STOP", "T", "; it is stopped: end it first"),
            (members[1], "KILL", "Z", f"; it has ended, and its parent {os.getpid()} has not waited for it yet")):
        proclib.send(member, ends_by)
        until(lambda member=member, state=state: proclib.state(member) == state, 20, f"its state is {state}")
        said = refused("restore", "--check", path)
        check(f"{needs}{members[1]} (" in said and said.endswith(f"){how}\n"), said)
    with subprocess.Popen([CUDAW, "restore", "--check", path], env=base_environment()) as command:
        until(lambda: sleeps(command.pid), 20, "it waits")
        for member in members:
            os.waitpid(member, 0)
    equal(command.returncode, 0, "the exit code of one that waited")


def sleeps(pid):
    with open(f"/proc/{pid}/syscall", encoding="ascii") as file:
        return file.read().startswith(f"{SYS_CLOCK_NANOSLEEP} ")


def host_of(path):
    host = next(name for name in os.listdir(path) if name.startswith("host-"))
    with open(f"{path}/{host}/host.json", encoding="ascii") as file:
        return host, json.load(file)


def image_of(path):
    """The ids of the processes and threads in it."""
    return {int(name[5:-4]) for name in os.listdir(f"{path}/{host_of(path)[0]}") if name.startswith("core-")}


@unsanitized
def all_processes_go_and_come_back():
    job, path = Server("--bytes", 1 << 20), directory()
    said = json.loads(cudaw_ok("snapshot", "--stop", "--json", job.engine, path))
    equal((said["processes"], job.states()), (len(job.pids), ""), "the processes, and what runs of them")
    check(set(job.pids) <= image_of(path), "not all are in the image")
    facts = host_of(path)[1]
    equal((facts["root"], sorted(one["pid"] for one in facts["processes"])), (job.pid, job.pids), "what it names")
    equal(sum(one["remote"] is None for one in facts["ports"]), 2, "the ports that listen")
    said = cudaw_ok("inspect", path)
    check(f"{len(job.pids)} processes, the first one {job.pid}" in said and f"[::1]:{job.port}" in said, said)
    cudaw_ok("verify", path)
    cudaw_ok("restore", "--check", path)
    with socket.create_server(("::1", job.port), family=socket.AF_INET6):
        for options in ([], ["--check"]):
            said = refused("restore", *options, path)
            check(f"needs the port [::1]:{job.port}, which is in use: process {os.getpid()} (" in said, said)
        equal(job.states(), "", "what runs")
    has_ids_of_others(job, path)
    if stands_in():
        check("no real CRIU" in refused("restore", path), "something does not fit")
        return
    for _ in range(2):
        cudaw_ok("restore", path)
        job.goes_on()
        path = directory()
        cudaw_ok("snapshot", "--stop", job.engine, path)
        equal(job.states(), "", "what runs of it")
    with subprocess.Popen([CUDAW, "restore", "--wait", path], env=base_environment()) as command:
        job.goes_on()
        job.finish()
    equal(command.returncode, 0, "the exit code of the command, which is the job's")


@unsanitized
def it_runs_on_after_its_snapshot():
    """Its connections, too; and a later restore finds it as it was, with what was on its way."""
    job, path = Server("--bytes", 1 << 20), directory()
    cudaw_ok("snapshot", job.engine, path)
    job.goes_on()
    if not stands_in():
        lines = job.lines()
        for pid in (job.pid, *job.pids):
            proclib.send(pid, "KILL")
        until(lambda: job.is_gone() and not job.states(), 20, "it is gone")
        cudaw_ok("restore", path)
        until(lambda: len(job.lines()) > len(lines), 30, "it goes on")
        steps = [int(line.split()[1]) for line in job.lines()[len(lines):]]
        check(3 < steps[0] < len(lines), f"it goes on at {steps[0]} of {len(lines)}")
        with open(job.log, "w", encoding="ascii") as file:
            file.write("".join(f"step {step}\n" for step in range(1, steps[-1] + 1)))
        os.kill(job.pid, signal.SIGINT)
        equal(job.wait_end(60)[-1], "server_job: every answer right", "the last line")
    else:
        job.finish()


@unsanitized
def one_that_fails_leaves_all_as_they_were():
    job = Server()
    for options in ([], ["--stop"]):
        snapshot = Snapshot(job.in_command, *options, path=directory()).in_criu()
        equal(job.states(), "T", "the states while CRIU works")
        job.repair()
        snapshot.let_criu_go(1)
        check("CRIU: " in snapshot.end(1), "it does not say so")
        job.goes_on()
    job.finish()


@unsanitized
def one_that_is_killed_leaves_all_stopped_until_a_resume():
    job = Server()
    snapshot = Snapshot(job.in_command, "--stop", path=directory()).in_criu()
    snapshot.process.kill()
    snapshot.process.wait()
    job.repair()
    snapshot.let_criu_go(1)
    equal(job.states(), "T", "the states")
    said = refused("resume", job.engine, preexec_fn=give_up_networks)
    check("has left its TCP connections unusable" in said, said)
    equal(job.states(), "T", "the states")
    cudaw_ok("resume", job.engine)
    job.goes_on()
    # A restore that is killed leaves all others stopped; a program may stop some of its own.
    for stopped in (job.others[:1], job.others):
        for pid in stopped:
            proclib.send(pid, "STOP")
        until(lambda stopped=stopped: all(proclib.state(pid) == "T" for pid in stopped), 20, "they are stopped")
        said = cudaw_ok("resume", job.engine)
        equal(("it was stopped by a signal" in said, "T" in job.states()),
              (stopped == job.others, stopped != job.others), f"whether {stopped} are continued")
    job.goes_on()
    job.finish()


@unsanitized
def restoring(job, path, ends_by):
    """A restore that gets this signal as the GPU memory comes back. Whether the others wait for that, and go on."""
    hold("in")
    with subprocess.Popen([CUDAW, "restore", path], env=base_environment(), stdout=subprocess.DEVNULL) as command:
        until(lambda: held_back("in") == {job.engine}, 60, "the memory comes back")
        equal({proclib.state(pid) for pid in job.others}, {"T"}, "the others' states")
        command.send_signal(ends_by)
    equal(command.returncode, -ends_by, "how the command ends")
    equal("T" in job.states(), ends_by == signal.SIGKILL, "whether the others wait")
    let_go("in")
    until(lambda: job.state() == "running", 30, "it runs")


@unsanitized
def the_others_run_when_the_memory_is_back():
    need_criu()
    job = Server()
    for ends_by in (signal.SIGINT, signal.SIGKILL):
        path = directory()
        cudaw_ok("snapshot", "--stop", job.engine, path)
        equal(job.states(), "", "what runs of it")
        restoring(job, path, ends_by)
        if ends_by == signal.SIGKILL:
            cudaw_ok("resume", job.engine)
        job.goes_on()
    path = directory()
    cudaw_ok("snapshot", "--stop", job.engine, path)
    equal(job.states(), "", "what runs of it")
    data, lines = glob.glob(f"{path}/data-*")[0], job.lines()
    with open(data, "r+b") as file:
        whole = file.read(8)
        file.seek(0)
        file.write(b"damaged.")
    check("the new processes were killed" in refused("restore", "--no-verify", path), "it does not say so")
    equal((job.states(), job.lines()), ("", lines), "what runs, and what it has printed")
    with open(data, "r+b") as file:
        file.write(whole)
    cudaw_ok("restore", "--paused", path)
    equal((job.state(), "T" in job.states()), ("paused", False), "the state, and whether the others wait")
    cudaw_ok("resume", job.engine)
    job.goes_on()
    job.finish()


def is_refused(job, reason):
    said = refused("snapshot", "--stop", job.engine, directory(), code=6)
    check(reason in said, f"{reason!r} is not in {said!r}")
    equal(job.state(), "running", "the state")


@unsanitized
def what_reaches_out_is_refused_by_name():
    """Before the job is paused."""
    job = Server()
    with socket.create_connection(("::1", job.port)):
        is_refused(job, f" of {job.pid} (python3) has a TCP connection from [::1]:")
    with subprocess.Popen(["sleep", "1000"], env={**os.environ, "CUDAW_JOB": jobs()[job.engine]["id"]}) as stray:
        is_refused(job, f"{stray.pid} (sleep) belongs to the job, but is not below its first process {job.pid}: ")
        stray.kill()
    equal(jobs()[job.engine].get("pause"), None, "its last pause")
    job.finish()


def asking(job):
    """A client that the server has accepted, and waits for."""
    port = int(job.lines()[0].split()[-1])
    client = socket.create_connection(("localhost", port))
    client.sendall(b"GET ")
    until(lambda: "--close-outside" in refused("snapshot", "--check", job.pid, code=6), 30, "it is accepted")
    return client


def is_reset(client):
    try:
        check(False, f"the client has got {client.recv(1)}")
    except ConnectionResetError:
        pass


def answer(job):
    with socket.create_connection(("localhost", int(job.lines()[0].split()[-1]))) as client:
        client.sendall(b"GET / HTTP/1.0\r\n\r\n")
        client.shutdown(socket.SHUT_WR)
        return client.makefile("rb").read()[-2:]


@unsanitized
def clients_can_be_closed():
    """They see it; the server serves on, here or from the snapshot."""
    job = Detached(f"{REPOSITORY}/examples/inference_server.py", 0, 16, log_mode="a")
    until(lambda: job.lines(), 30, "it serves")
    with asking(job) as client:
        snapshot = Snapshot(job, "--close-outside").in_criu()
        snapshot.let_criu_go(1)
        check("connections to others closed: 1" in snapshot.end(1), "it does not say so")
        is_reset(client)
    for options in ([], ["--stop"]):
        path = directory()
        with asking(job) as client:
            cudaw_ok("snapshot", "--close-outside", "--check", job.pid)
            said = json.loads(cudaw_ok("snapshot", "--close-outside", *options, "--json", job.pid, path))
            equal(said["closed"], 1, "the connections that were closed")
            is_reset(client)
        if options and stands_in():
            return
        if options:
            until(job.is_gone, 20, "it has ended")
            cudaw_ok("restore", path)
        equal(answer(job), b"42", "its answer")
    proclib.send(job.pid, "KILL")


@unsanitized
def none_is_closed_in_vain():
    """If connections of the job do not come to rest."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        job = Server("--connects", listening.getsockname()[1])
        client = listening.accept()[0]
    for pid in job.others:
        proclib.send(pid, "STOP")
    until(lambda: all(proclib.state(pid) == "T" for pid in job.others), 20, "they are stopped")
    for connection in job.connections():
        while connection.family == socket.AF_INET6:
            try:
                connection.send(bytes(1 << 20), socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
    snapshot = Snapshot(job.in_command, "--close-outside")
    until(lambda: job.states() == "T", 30, "all are stopped")
    snapshot.process.send_signal(signal.SIGINT)     # so it does not try again
    said = snapshot.end(1)
    check("there is no room for more" in said and "closed" not in said, said)
    with client:
        client.setblocking(False)
        check(not any(select.select([client], [], [], 0)), "it is closed")
    for pid in job.pids:
        proclib.send(pid, "KILL")


@unsanitized
def one_that_overwrites_its_environment_is_refused():
    """A resume after a command that was killed would not find all, and so continues none."""
    os.environ["SPT_NOENV"] = ""
    for title in "server", "engine":
        job = Server("--title", title)
        named = job.pid if title == "server" else job.engine
        is_refused(job, f"process {named} (python3) has overwritten its environment")
        if title == "engine":
            for pid in job.pids:
                os.kill(pid, signal.SIGSTOP)
            until(lambda: job.states() == "T", 20, "all are stopped")
            said = refused("resume", job.engine)
            check(f"its parent {job.pid} is stopped: continue all its processes" in said, said)
            equal(job.states(), "T", "the states")
            for pid in job.pids:
                os.kill(pid, signal.SIGCONT)
        job.finish()
    del os.environ["SPT_NOENV"]


@unsanitized
def a_client_that_waits_does_not_lengthen_the_pause():
    """What came during the pause, and is not accepted before it ends, gets the two seconds that it would get before."""
    job = Server()
    hold("out")
    with subprocess.Popen([CUDAW, "snapshot", "--stop", str(job.engine), directory()], text=True,
                          env=base_environment(), stderr=subprocess.PIPE) as command:
        until(lambda: job.state() != "running", 30, "its pause begins, for which its copy has to end")
        with socket.create_connection(("::1", job.port)):
            let_go("out")
            said = command.communicate(timeout=30)[1]
            check(command.returncode == 1 and "that it has not accepted yet (try again)" in said, said)
            job.goes_on()
    job.finish()


# Its second child has its memory (vfork) until somebody opens the second argument for writing.
SPAWNING = """
import os, signal, sys
print("engine", os.spawnv(os.P_NOWAIT, sys.argv[1], [sys.argv[1], "--steps", "1000000", "--step-ms", "10"]), flush=True)
os.posix_spawn("/bin/true", ["true"], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 0, sys.argv[2], os.O_RDONLY, 0)])
signal.pause()
"""


@unsanitized
def one_that_cannot_be_stopped_yet_is_tried_again():
    fifo = f"{directory()}.fifo"
    os.mkfifo(fifo)
    job = Detached(sys.executable, "-c", SPAWNING, f"{BUILD}/tests/programs/counter", fifo)
    job.wait_steps(3)
    engine = int(job.lines()[0].split()[1])
    until(lambda: len(proclib.descendants(job.pid)) == 2, 20, "its second child is there")
    spawned, = set(proclib.descendants(job.pid)) - {engine}
    snapshot = Snapshot(types.SimpleNamespace(pid=engine), "--stop")
    until(lambda: proclib.state(spawned) == "T", 30, "the processes are to stop")
    os.close(os.open(fifo, os.O_WRONLY))
    snapshot.in_criu().let_criu_go(1)
    check("CRIU: " in snapshot.end(1), "it does not say so")
    job.wait_steps(job.steps() + 3)
    for pid in (job.pid, engine):
        proclib.send(pid, "KILL")


DROPPING = """
import os, signal, sys
print("engine", os.spawnv(os.P_NOWAIT, sys.argv[1], [sys.argv[1], "--steps", "1000000", "--step-ms", "10"]), flush=True)
os.setuid(65534)
signal.pause()
"""


def processes_of_other_users_are_not_of_roots_job():
    job = Detached(sys.executable, "-c", DROPPING, f"{BUILD}/tests/programs/counter")
    job.wait_steps(3)
    engine = int(job.lines()[0].split()[1])
    for pid in (job.pid, engine):
        os.kill(pid, signal.SIGSTOP)
    until(lambda: {proclib.state(pid) for pid in (job.pid, engine)} == {"T"}, 20, "both are stopped")
    cudaw_ok("resume", engine)
    job.wait_steps(job.steps() + 3)
    equal(proclib.state(job.pid), "T", "the state of the other user's")
    for pid in (job.pid, engine):
        proclib.send(pid, "KILL")


LOST = """
import ctypes, os, signal, sys
def stay():
    os.write(1, b"lost %d\\n" % os.getpid())
    while True:
        signal.pause()
if os.fork() == 0:
    if sys.argv[2] == "left":
        os.fork() or stay()
        os.setsid()
    else:
        ctypes.CDLL(None).prctl(36, 1)
        if os.fork() == 0:
            os.setsid()
            os._exit(0 if os.fork() else stay())
        os.wait()
    os.write(1, b"there\\n")
    signal.pause()
os.execv(sys.argv[1], [sys.argv[1], "--steps", "1000000", "--step-ms", "10"])
"""     # PR_SET_CHILD_SUBREAPER


def one_in_a_session_that_no_restore_can_make_is_refused():
    """Of a shell, which the parent has left; and of a process that has ended, whose child another one has adopted."""
    for how in "left", "adopted":
        job = Detached(sys.executable, "-c", LOST, f"{BUILD}/tests/programs/counter", how,
                       start_new_session=how != "left")
        job.wait_steps(3)
        until(lambda job=job: "there" in job.lines(), 20, "all are there")
        lost = next(int(line.split()[1]) for line in job.lines() if line.startswith("lost"))
        said = refused("snapshot", "--check", job.pid, code=6)
        check(f"{lost} (python3) is in the session {os.getsid(lost)}, which neither its parent " in said, said)
        equal(said.count("\n"), 1, f"the reasons ({said})")
        for pid in (job.pid, *proclib.descendants(job.pid)):
            proclib.send(pid, "KILL")


GROUPED = """
import os, signal, sys
def child():
    pid = os.fork()
    while pid == 0:
        signal.pause()
    return pid
if os.fork() == 0:
    leader, member = child(), child()
    os.setpgid(leader, leader)
    os.setpgid(member, leader)
    os.kill(leader, signal.SIGKILL)
    os.wait()
    print("group", leader, flush=True)
    signal.pause()
os.execv(sys.argv[1], [sys.argv[1], "--steps", "1000000", "--step-ms", "10"])
"""


@unsanitized
def the_id_of_a_group_without_its_first_process_is_needed():
    job, path = Detached(sys.executable, "-c", GROUPED, f"{BUILD}/tests/programs/counter"), directory()
    job.wait_steps(3)
    until(lambda: any(line.startswith("group") for line in job.lines()), 20, "the group is there")
    group = next(int(line.split()[1]) for line in job.lines() if line.startswith("group"))
    cudaw_ok("snapshot", "--stop", job.pid, path)
    until(job.is_gone, 20, "it has ended")
    others = leave_session(group)
    for options in ["--check"], []:
        said = refused("restore", *options, path)
        check(f"a session or process group of the job needs the id {group}, which is that of the session " in said, said)
    for other in others:
        proclib.send(other, "KILL")
        os.waitpid(other, 0)
    cudaw_ok("restore", "--check", path)
    if not stands_in():
        cudaw_ok("restore", path)
        equal({os.getpgid(pid) for pid in proclib.descendants(job.pid)}, {job.pid, group}, "the groups of its children")
        for pid in (job.pid, *proclib.descendants(job.pid)):
            proclib.send(pid, "KILL")


APART = """
import ctypes, os, signal, sys
if os.fork() == 0:
    ctypes.CDLL(None).unshare(0x20000000)
    os.fork()
    signal.pause()
os.execv(sys.argv[1], [sys.argv[1], "--steps", "1000000", "--step-ms", "10"])
"""     # CLONE_NEWPID


def numbers(pid):
    """Of a process, in the PID namespaces of which it is."""
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        return next(line.split()[1:] for line in file if line.startswith("NSpid:"))


def one_in_a_pid_namespace_of_its_own_is_refused():
    job = Detached(sys.executable, "-c", APART, f"{BUILD}/tests/programs/counter")
    job.wait_steps(3)
    until(lambda: len(proclib.descendants(job.pid)) == 2, 20, "both processes below are there")
    apart = [pid for pid in proclib.descendants(job.pid) if len(numbers(pid)) > len(numbers(job.pid))]
    if not apart:
        raise Skip("no PID namespace can be made")
    said = refused("snapshot", "--stop", job.pid, directory(), code=6)
    check(f"its process {apart[0]} is in a PID namespace of its own" in said, said)
    equal(jobs()[job.pid].get("pause"), None, "its last pause")
    for pid in (job.pid, *proclib.descendants(job.pid)):
        proclib.send(pid, "KILL")


def a_command_that_is_a_part_of_the_job():
    fifo = f"{directory()}.fifo"
    os.mkfifo(fifo)
    script = '"$0" --steps 1000000 --step-ms 10 & read go < "$2"; "$1" snapshot --stop $! "$2.dir"; echo exit $?; wait'
    job = Detached("/bin/sh", "-c", script, f"{BUILD}/tests/programs/counter", CUDAW, fifo)
    job.wait_steps(3)
    with open(fifo, "w", encoding="ascii") as file:
        file.write("go\n")
    until(lambda: "exit 6" in job.lines(), 30, "it is refused")
    check(any(f"this command is a process of the job, below its first process {job.pid}: " in line
              for line in job.lines()), job.lines())
    for pid in (job.pid, *proclib.descendants(job.pid)):
        proclib.send(pid, "KILL")


os.environ.update(HELD)
allow_stand_in()
main(all_processes_go_and_come_back, it_runs_on_after_its_snapshot, one_that_fails_leaves_all_as_they_were,
     one_that_is_killed_leaves_all_stopped_until_a_resume, the_others_run_when_the_memory_is_back,
     what_reaches_out_is_refused_by_name, clients_can_be_closed, none_is_closed_in_vain,
     one_that_overwrites_its_environment_is_refused, a_client_that_waits_does_not_lengthen_the_pause,
     one_that_cannot_be_stopped_yet_is_tried_again, processes_of_other_users_are_not_of_roots_job,
     the_id_of_a_group_without_its_first_process_is_needed, one_in_a_session_that_no_restore_can_make_is_refused,
     one_in_a_pid_namespace_of_its_own_is_refused, a_command_that_is_a_part_of_the_job)
