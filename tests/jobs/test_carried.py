#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
What of a job's surroundings a snapshot carries, what it needs where it goes on, and what it cannot
carry: that is named, and the job runs on.
"""
import array
import atexit
import contextlib
import fcntl
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import tempfile

from simlib import SCRATCH, unsanitized
from detached import Detached
import gpulib
from gpulib import BUILD, CUDAW, Skip, check, cudaw, cudaw_ok, equal, main, until
from restorelib import (Counting, Terminal, allow_stand_in, criu_after, directory, goes_on, need_criu,
                        refused, stands_in, stopped, why_not)
import proclib
from shelllib import Shell

OTHER = 12345
CAP_SETPCAP, CAP_CHECKPOINT_RESTORE = 8, 40


def allow(path, capabilities):
    """As setcap(8): permitted and in effect."""
    words = [0x02000001, capabilities & 0xffffffff, 0, capabilities >> 32, 0]
    os.setxattr(path, "security.capability", struct.pack("<5I", *words))


def with_descriptor(fd, **options):
    return Counting(pass_fds=[fd], **options)


def runs_on(job, message, code=6):
    """No snapshot is taken; the message, a pattern, says why; and the job runs on."""
    path = directory()
    said = refused("snapshot", "--stop", job.pid, path, code=code)
    check(re.search(message.replace("PID", str(job.pid)), said), f"{message!r} is not in {said!r}")
    check(not os.path.exists(f"{path}/manifest.json"), "there is a snapshot")
    equal(job.state(), "running", "the state")
    job.wait_steps(job.steps() + 3)
    job.finish()


def a_pipe_to_another_program():
    log = os.path.join(tempfile.mkdtemp(dir=SCRATCH), "log")
    tee = subprocess.Popen(["tee", log], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    until(lambda: os.path.exists(log), 10, "tee has begun")

    class Piped(Counting):
        def lines(self):
            with open(log, encoding="utf-8") as file:
                return file.read().splitlines()

        def wait_end(self, timeout=120):
            super().wait_end(timeout)
            tee.wait(timeout)       # tee writes the job's last lines after the job has ended
            return self.lines()
    job = Piped(stdout=tee.stdin)
    tee.stdin.close()
    runs_on(job, rf"descriptor 1 of PID \(counter\) is a pipe to {tee.pid} \(tee\), which is not part")


def a_pipe_with_a_path():
    path = os.path.join(tempfile.mkdtemp(dir=SCRATCH), "pipe")
    os.mkfifo(path)
    with open(os.open(path, os.O_RDWR), "rb"), open(path, "wb") as writes:
        job = with_descriptor(writes.fileno())
        runs_on(job, rf"descriptor {writes.fileno()} of PID \(counter\) is a pipe to {os.getpid()} \(")


def all_reasons_are_listed_at_once():
    """And nothing is asked of the job."""
    theirs, mine = os.pipe()
    ours, far, _ = connected()
    job = Counting(stdin=theirs, pass_fds=[ours.fileno()])
    os.close(theirs)
    ours.close()
    path = directory()
    said = refused("snapshot", "--check", job.pid, path, code=6)
    for reason in (f"descriptor 0 of {job.pid} (counter) is a pipe from {os.getpid()} (", "is a TCP connection to "):
        check(reason in said, f"{reason!r} is not in {said!r}")
    check(not os.path.exists(path) and said.count("\n") >= 2, said)
    far.close()
    os.close(mine)
    job.finish()
    job = Counting()
    for options in ((), (path,)):
        equal(cudaw_ok("snapshot", "--check", job.pid, *options), f"{job.pid} can be put into a snapshot\n",
              "what it says")
    check(not os.path.exists(path), "the directory was made")
    used, loop = directory(), directory()
    os.mkdir(used)
    os.mkdir(os.path.join(used, "work"))
    os.symlink(loop, loop)
    for unfit, reason in ((used, "work"), (__file__, "Not a directory"), (loop, "")):
        said = refused("snapshot", "--check", job.pid, unfit, code=1)
        check(reason in said and unfit in said, f"{unfit} is refused with {said!r}")
    job.finish()


def a_pipe_from_another_program():
    theirs, mine = os.pipe()
    job = Counting(stdin=theirs)
    os.close(theirs)
    runs_on(job, rf"descriptor 0 of PID \(counter\) is a pipe from {os.getpid()} \(")
    os.close(mine)


def a_pipe_that_nobody_writes_to_is_carried():
    need_criu()
    theirs, mine = os.pipe()
    os.close(mine)
    job, path = stopped(stdin=theirs)
    os.close(theirs)
    goes_on(job, path)


def connected():
    """Two ends of a connection by TCP, and the port of the second."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        mine = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
    return mine, theirs, theirs.getsockname()[1]


def a_connection_by_tcp():
    mine, theirs, port = connected()
    number = mine.fileno()
    job = with_descriptor(number)
    mine.close()
    runs_on(job, rf"descriptor {number} of PID \(counter\) is a TCP connection to "
                 rf"127\.0\.0\.1:{port} of {os.getpid()} \(.*\), which is not part of the job: end it first")
    theirs.close()


def a_tcp_socket_that_listens_is_carried():
    need_criu()
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as server:
        name = server.getsockname()
        job, path = stopped(pass_fds=[server.fileno()])
    steps = job.steps()
    cudaw_ok("restore", path)
    job.wait_steps(steps + 3)
    socket.create_connection(name[:2]).close()
    job.finish()


def a_unix_socket_to_another_program():
    path = os.path.join(tempfile.mkdtemp(dir=SCRATCH), "socket")
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        server.bind(path)
        server.listen()
        client.connect(path)
        theirs, _ = server.accept()
        job = with_descriptor(client.fileno())
        number = client.fileno()
        client.close()
        runs_on(job, rf"descriptor {number} of PID \(counter\) is a Unix socket to {os.getpid()} "
                     rf"\(.*\) at {path}, which is not part of the job")
        theirs.close()


def a_descriptor_under_way():
    one, two = socket.socketpair()
    one.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0]))])
    job = Counting(pass_fds=[one.fileno(), two.fileno()])
    number = two.fileno()
    one.close()
    two.close()
    runs_on(job, rf"descriptor {number} of PID \(counter\) is a Unix socket to which a descriptor was sent that it has not received")


def a_deleted_file_of_some_size():
    """CRIU carries deleted files, but not of any size."""
    need_criu()
    with tempfile.TemporaryFile(dir=SCRATCH) as file:
        file.write(b"kept")
        file.flush()
        job, path = stopped(pass_fds=[file.fileno()])
        goes_on(job, path)
        os.posix_fallocate(file.fileno(), 0, (1 << 30) + 4096)
        job = with_descriptor(file.fileno())
        runs_on(job, r"CRIU: Can't dump ghost file .* of [0-9]+ size", code=1)


def a_file_that_has_another_name():
    path = os.path.join(tempfile.mkdtemp(dir=SCRATCH), "file")
    with open(path, "w+b") as file:
        os.link(path, f"{path}.again")
        os.unlink(path)
        job = with_descriptor(file.fileno())
        said = rf"descriptor {file.fileno()} of PID \(counter\) is a file that has lost its name, .*: {path} \(deleted\)"
        check(re.search(said.replace("PID", str(job.pid)), refused("snapshot", "--check", job.pid, code=6)), said)
        runs_on(job, said)


class InTerminal(Counting):
    """A job of two processes with a terminal, as a shell would start it. The second one says all that is typed."""

    def __init__(self):
        self.terminals = [Terminal()]
        slave, both = self.terminals[0].slave, os.path.join(tempfile.mkdtemp(dir=SCRATCH), "counter")
        with open(both, "w", encoding="ascii", opener=lambda *file: os.open(*file, 0o700)) as file:
            file.write(f'#!/bin/sh\nexec 3<&0\ncat <&3 &\nexec {BUILD}/tests/programs/counter "$@"\n')
        super().__init__(both, stdin=slave, stdout=slave, stderr=slave)

    def lines(self):
        return [line for terminal in self.terminals for line in terminal.lines()]

    def wait_end(self, timeout=120):
        super().wait_end(timeout)
        for terminal in self.terminals:
            terminal.read_to_end()
        return self.lines()


def a_terminal():
    need_criu()
    path = directory()
    job = InTerminal()
    cudaw_ok("snapshot", "--stop", job.pid, path)
    check(job.is_gone(), "the job is still there")
    check(re.search(r"needs +\d+ mapped files; of its process image \d+ files and directories, and a "
                    r"terminal\n", cudaw_ok("inspect", path)), "inspect does not say what it needs")
    said = refused("restore", path, stdin=subprocess.DEVNULL)
    check("has a terminal: expected one as standard input, found none" in said, said)
    job.terminals.append(Terminal())
    steps = job.steps()
    cudaw_ok("restore", path, stdin=job.terminals[1].slave)
    job.wait_steps(steps + 3)
    check(any("step" in line for line in job.terminals[1].lines()), "it prints elsewhere")
    os.write(job.terminals[1].master, b"typed\n")
    until(lambda: job.terminals[1].lines().count("typed") == 2, 30, "it is shown, and said by the other process")
    for pid in proclib.descendants(job.pid):
        os.kill(pid, signal.SIGKILL)
    job.finish()


def a_shell_that_has_restored_it():
    """The shell's job is the command, and the terminal has the group that the program was in."""
    need_criu()
    shell, path = Shell(), directory()
    cudaw_ok("snapshot", "--stop", shell.job, path)
    shell.read_until(lambda said: "Stopped" in said, "the shell is there again")
    shell.type(f"{CUDAW} restore --wait {path}\n")
    shell.wait_steps(3)
    for _ in range(2):
        shell.stop()
        shell.go_on()
    shell.end_well()


def nothing_is_started_where_a_file_has_changed():
    need_criu()
    job, path = stopped()
    log = job.log
    with open(log, encoding="utf-8") as file:
        text = file.read()
    size = len(text)

    def refuses(message):
        said = refused("restore", path)
        check(message in said, f"{message!r} is not in {said!r}")
        check(job.is_gone(), "a process was started")
    os.rename(log, log + ".away")
    refuses(f"the job has {log} open: No such file or directory")
    os.mkdir(log)
    refuses(f"the job has {log} open: expected type and mode 100644, found 040755")
    os.rmdir(log)
    os.rename(log + ".away", log)
    for other in ("more\n", ""):
        with open(log, "w", encoding="utf-8") as file:
            file.write(text + other if other else text[:-1])
        refuses(f"the job has {log} open: expected {size} bytes, found {size + len(other) - (not other)}" +
                (" ('truncate -s' can cut it off)" if other else "\n"))
    with open(log, "w", encoding="utf-8") as file:
        file.write(text)
    goes_on(job, path)


class Loading(Detached):
    """A data loader. It makes 200 steps, and stays until wait_end()."""

    def __init__(self, *args):
        self.end = os.path.join(tempfile.mkdtemp(dir=SCRATCH), "end")
        super().__init__("loader_job.py", "--steps", 200, "--step-ms", 10, "--stay", self.end, *args)
        self.wait_steps(3)

    def wait_end(self, timeout=120):
        with open(self.end, "w", encoding="ascii"):
            pass
        return super().wait_end(timeout)


@unsanitized
def mapped_data_may_change_until_the_job_is_stopped():
    """It grows, or goes, when all but the image is written."""
    mapped = os.path.join(SCRATCH, "loader_job-mapped")
    for change in (f"truncate -s 4M {mapped}", f"rm {mapped}"):
        job = Loading()
        path = directory()
        refused("snapshot", "--stop", job.pid, path, code=0, env=criu_after("dump", change))
        check(job.is_gone(), "the job is still there")
        if stands_in():
            check("no real CRIU" in refused("restore", path), "something does not fit")
        else:
            cudaw_ok("restore", path)
            equal(job.wait_end()[-1], "loader_job: every step right", "the last line")


def a_log_that_is_appended_to_may_have_grown():
    need_criu()
    job, path = stopped(log_mode="a")
    with open(job.log, "a", encoding="utf-8") as file:
        file.write("a line that came later\n")
    goes_on(job, path)
    check("a line that came later" in job.lines(), "the line is gone")


def the_working_directory_is_needed():
    where = tempfile.mkdtemp(dir=SCRATCH)
    job, path = stopped(cwd=where)
    os.rmdir(where)
    check(f"the job's working directory {where}: No such file" in refused("restore", path), "it")
    os.mkdir(where, 0o700)
    goes_on(job, path)


def paths_of_any_bytes():
    """Of the working directory, of what it maps, and of its socket."""
    home = os.path.join(tempfile.mkdtemp(dir=SCRATCH), os.fsdecode(b"caf\xe9 \x1b\n"))
    os.mkdir(home)
    program = shutil.copy(f"{BUILD}/tests/programs/counter", home)
    saved, gpulib.RUNTIME_DIR = gpulib.RUNTIME_DIR, f"{home}/run"
    try:
        job, path = stopped(program=program, cwd=home)
        os.rename(program, program + ".away")
        check("/caf? ??/counter: No such file" in refused("restore", path), "what it maps")
        os.rename(program + ".away", program)
        goes_on(job, path)
    finally:
        gpulib.RUNTIME_DIR = saved


def a_working_directory_that_was_removed():
    need_criu()
    where = tempfile.mkdtemp(dir=SCRATCH, suffix=" (deleted)")  # a name as any other
    job, path = stopped(cwd=where)
    goes_on(job, path)
    job = Counting(cwd=where)
    os.rmdir(where)
    path = directory()
    cudaw_ok("snapshot", "--gpu-only", job.pid, path)
    cudaw_ok("verify", path)
    runs_on(job, rf"the working directory of PID \(counter\) was removed: {re.escape(where)}\n")


def a_process_that_nobody_waited_for():
    path = directory()
    job = Counting()
    cudaw_ok("snapshot", "--stop", job.pid, path)
    said = refused("restore", path)     # its parent, this test, has not waited for it yet
    check(f"the job's process needs the id {job.pid}, which 'counter' has now; it has ended, and its parent "
          f"{os.getpid()} has not waited for it yet" in said, said)
    job.process.wait()
    goes_on(job, path)


def is_locked(path):
    with open(path, "r+b") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 16)
            return False
        except BlockingIOError:
            return True


@unsanitized
def record_locks_are_kept():
    """
    To close a file drops all that a process has on it: nothing of ours may open what it maps. CRIU
    does, so a restored job has only those on other files.
    """
    job = Loading()
    path, mapped = (os.path.join(SCRATCH, f"loader_job-{name}") for name in ("locked", "mapped"))
    check(is_locked(path) and is_locked(mapped), "the job has no lock")
    for _ in range(2):
        cudaw_ok("snapshot", "--gpu-only", job.pid, directory())
        check(is_locked(path) and is_locked(mapped), "the job has lost a lock by a snapshot")
    if not why_not():
        snapshot = directory()
        cudaw_ok("snapshot", "--stop", job.pid, snapshot)
        check(job.is_gone() and not is_locked(path), "there is a lock without the job")
        cudaw_ok("restore", snapshot)
        check(is_locked(path), "the restored job has no lock")
    equal(job.wait_end()[-1], "loader_job: every step right", "the last line")


@contextlib.contextmanager
def home_of_another():
    """A directory of another user, who has the runtime directory in it."""
    need_criu()
    if os.getuid() != 0:
        raise Skip("it takes root")
    home = tempfile.mkdtemp(prefix="cudaw-test-", dir=os.path.dirname(SCRATCH))     # others may look into it
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    os.chown(home, OTHER, OTHER)
    saved, gpulib.RUNTIME_DIR = gpulib.RUNTIME_DIR, f"{home}/run"
    try:
        yield home
    except PermissionError:
        raise Skip("another user cannot reach the programs of this build") from None
    finally:
        gpulib.RUNTIME_DIR = saved


def a_job_of_another_user():
    """By root, as CRIU wants; the image is root's, and one that is not is not used."""
    with home_of_another() as home:
        run, path = f"{home}/run", f"{home}/snapshot"
        job = Counting(user=OTHER, group=OTHER, extra_groups=[], cwd=home)
        done = cudaw("snapshot", "--stop", job.pid, path)
        if "rlimit" in done.stderr:
            equal(job.state(), "running", "the state")
            job.finish()
            raise Skip("root has not all capabilities here")
        equal(done.returncode, 0, f"the exit code of cudaw snapshot ({done.stderr})")
        check(job.is_gone(), "the job is still there")
        host = next(name for name in os.listdir(path) if name.startswith("host-"))
        equal([os.stat(name).st_uid for name in (path, f"{path}/{host}")], [OTHER, 0], "the owners")
        os.chown(f"{path}/{host}", OTHER, OTHER)
        check(f"{host}: it belongs to user {OTHER}; expected user 0" in refused("restore", path),
              "an image of anybody")
        os.chown(f"{path}/{host}", 0, 0)
        steps = job.steps()
        cudaw_ok("restore", path)
        job.wait_steps(steps + 3)
        equal(os.stat(f"/proc/{job.pid}").st_uid, OTHER, "the user of the job")
        cudaw_ok("snapshot", "--stop", job.pid, path)
        shutil.rmtree(run)
        check(f"{run} cannot be used" in
              refused("restore", path, env={"CUDAW_RUNTIME_DIR": ""}), "a directory is made for another")
        os.mkdir(run, 0o700)
        os.chown(run, OTHER, OTHER)
        goes_on(job, path)


def by_a_user_alone():
    """CRIU's file has the capabilities that docs/slurm.md names, and not more."""
    with home_of_another() as home:
        path, criu, shared = f"{home}/snapshot", f"{home}/criu", f"/dev/shm/carried-{os.getpid()}"
        with open(shared, "w", encoding="ascii") as file:
            os.fchown(file.fileno(), OTHER, OTHER)
            file.write("as it was")
        atexit.register(lambda: os.path.exists(shared) and os.unlink(shared))
        job = Counting("/bin/sh", "-c", 'TEST_MAPS=$0 LD_PRELOAD="$LD_PRELOAD $1" && export TEST_MAPS LD_PRELOAD && shift && exec "$@"', shared,
                       f"{BUILD}/tests/preload/maps.so", f"{BUILD}/tests/programs/counter", user=OTHER, group=OTHER,
                       extra_groups=[], cwd=home)
        shutil.copy(shutil.which(os.environ.get("CUDAW_CRIU", "criu")), criu)
        for directory_of_log in (SCRATCH, os.path.dirname(job.log)):
            os.chmod(directory_of_log, 0o711)
        os.chown(job.log, OTHER, OTHER)

        def does(*command, code=0):
            done = subprocess.run([gpulib.CUDAW, *map(str, command)], user=OTHER, group=OTHER, extra_groups=[],
                                  env={**gpulib.base_environment(), "CUDAW_CRIU": criu, "TMPDIR": home}, check=False,
                                  text=True, capture_output=True, timeout=300)
            equal(done.returncode, code, f"the exit code of cudaw {command} ({done.stderr})")
            return done.stderr

        for capabilities, lacks in ((0, "CAP_CHECKPOINT_RESTORE"), (1 << CAP_SETPCAP, "CAP_CHECKPOINT_RESTORE"),
                                    (1 << CAP_CHECKPOINT_RESTORE, "CAP_SETPCAP")):
            allow(criu, capabilities)
            check(f"is not permitted to make process images, which needs {lacks}:" in
                  does("snapshot", job.pid, path, code=6), f"it does not name {lacks}")
        allow(criu, 1 << CAP_CHECKPOINT_RESTORE | 1 << CAP_SETPCAP)
        does("snapshot", "--stop", job.pid, path)
        check(job.is_gone() and not os.path.exists(shared), "the job is still there, or its file in /dev/shm")
        steps = job.steps()
        does("restore", path)
        job.wait_steps(steps + 3)
        equal(os.stat(f"/proc/{job.pid}").st_uid, OTHER, "the user of the job")
        with open(shared, encoding="ascii") as file:
            equal(file.read(), "as it was", "what is in its file")
        job.finish()


def everything_that_a_data_loader_has():
    """Twice in a row; and the directory of its sockets is made again."""
    need_criu()
    log = os.path.join(tempfile.mkdtemp(dir=SCRATCH), "steps")
    job = Loading("--log", log)
    for count in (20, 100):
        job.wait_steps(count)
        path = directory()
        cudaw_ok("snapshot", "--stop", job.pid, path)
        check(job.is_gone(), "the job is still there")
        for made in os.listdir(SCRATCH):
            if made.startswith("pymp-"):
                shutil.rmtree(os.path.join(SCRATCH, made))
        cudaw_ok("restore", path)
    lines = job.wait_end()
    equal(lines[-1], "loader_job: every step right", "the last line")
    equal(lines[:-1], [f"step {k + 1}" for k in range(200)], "the steps")
    with open(log, encoding="utf-8") as file:
        equal(file.read().splitlines(), lines[:-1], "the log")
    equal([name for name in os.listdir(SCRATCH) if name.startswith("pymp-")], [], "what is left")


if __name__ == "__main__":
    allow_stand_in()
    main(a_pipe_to_another_program, a_pipe_with_a_path, all_reasons_are_listed_at_once, a_pipe_from_another_program,
         a_pipe_that_nobody_writes_to_is_carried, a_connection_by_tcp,
         a_tcp_socket_that_listens_is_carried, a_unix_socket_to_another_program,
         a_descriptor_under_way,
         a_deleted_file_of_some_size, a_file_that_has_another_name, a_terminal, a_shell_that_has_restored_it, nothing_is_started_where_a_file_has_changed,
         mapped_data_may_change_until_the_job_is_stopped,
         a_log_that_is_appended_to_may_have_grown, the_working_directory_is_needed,
         paths_of_any_bytes, a_working_directory_that_was_removed, a_process_that_nobody_waited_for,
         record_locks_are_kept, a_job_of_another_user, by_a_user_alone,
         everything_that_a_data_loader_has)
