#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
What cudaw snapshot makes of a CRIU that is missing, too old, not permitted, fails or is slow: a
pretended one, so that all but the last case need none.
"""
import ctypes
import os
import re
import resource
import struct
import subprocess
import tempfile

from simlib import HELD, SCRATCH, hold, let_go, let_through
from gpulib import CUDAW, Skip, base_environment, check, cudaw_ok, equal, main
from harness import PATIENCE, ends_with_us, until
from restorelib import (STAND_IN, Counting, Terminal, directory, need_criu, nobody_writes_there, pretended_criu,
                        refused, unheard)


PR_SET_SECCOMP = 22


def filter_calls():
    """A filter of system calls that permits all of them."""
    code = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0x7fff0000))    # BPF_RET, SECCOMP_RET_ALLOW
    ctypes.CDLL(None).prctl(PR_SET_SECCOMP, 2, struct.pack("H6xP", 1, ctypes.addressof(code)))


def without_a_criu_that_will_do():
    job = Counting(preexec_fn=filter_calls)
    path = directory()
    with open(f"{path}.criu", "w", encoding="ascii"):
        pass
    for env, message in [({"CUDAW_CRIU": "/nowhere/criu"},
                          "/nowhere/criu cannot be run: No such file or directory"),
                         ({"CUDAW_CRIU": f"{path}.criu"},
                          f"{path}.criu cannot be run: Permission denied"),
                         ({"CUDAW_CRIU": "", "PATH": "/nowhere"}, "there is no 'criu' in PATH"),
                         (pretended_criu("echo Version: 3.17.1"),
                          "is version 3.17; expected 4.1 or later"),
                         (pretended_criu("exit 1"), "--version prints no version")]:
        said = refused("snapshot", job.pid, path, code=6, env=env)
        check(message in said and "--gpu-only" not in said, said)
        check(not os.path.exists(path), "the directory was made")
    if os.getuid() == 0:
        env = pretended_criu("echo Version: 4.2")
        for lacks, named in ("all", "CAP_CHECKPOINT_RESTORE"), ("setpcap", "CAP_SETPCAP"):
            done = subprocess.run(["setpriv", f"--bounding-set=-{lacks}", f"--inh-caps=-{lacks}", CUDAW, "snapshot",
                                   str(job.pid), path], env={**base_environment(), **env}, text=True,
                                  capture_output=True, check=False)
            equal(done.returncode, 6, f"the exit code without {named}")
            check(f"{env['CUDAW_CRIU']} is not permitted to make process images, which needs {named}:" in done.stderr,
                  done.stderr)
        done = subprocess.run(["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin", CUDAW, "snapshot",
                               "--check", str(job.pid)], env={**base_environment(), **env}, text=True,
                              capture_output=True, check=False)
        filtered = f"its process {job.pid} (counter) has a filter of system calls (seccomp)"
        check(filtered in done.stderr, done.stderr)
        check(filtered in refused("snapshot", job.pid, path, code=6, env=env, preexec_fn=filter_calls), "it is taken")
        done = subprocess.run(["setpriv", "--bounding-set=-net_admin,-sys_resource",
                               "--inh-caps=-net_admin,-sys_resource", CUDAW, "doctor"],
                              env={**base_environment(), **env}, text=True, capture_output=True, check=False)
        check("carry TCP connections, which needs CAP_NET_ADMIN, and jobs of other users, which needs CAP_SYS_RESOURCE"
              in " ".join(done.stdout.split()), done.stdout)
    equal(job.state(), "running", "the state")
    said = cudaw_ok("snapshot", "--gpu-only", job.pid, path)
    check("'cudaw restore' cannot start it from there" in said, said)
    cudaw_ok("verify", path)
    check("mapped files; it has no process image" in cudaw_ok("inspect", path), "inspect says not")
    check("has no process image" in refused("restore", path), "restore does not say it")
    job.finish()


def with_another_group_than_the_commands():
    """What CRIU asks for of such a process takes CAP_SYS_RESOURCE, as of one with another user."""
    if os.getuid() != 0:
        raise Skip("process images take root")
    env = {**base_environment(), **pretended_criu("echo Version: 4.2")}
    job, other = Counting(), Counting(group=65534)
    for target, args, code in (job, ["--check"], 0), (other, ["--check"], 6), (other, [], 6):
        done = subprocess.run(["setpriv", "--bounding-set=-sys_resource", "--inh-caps=-sys_resource", CUDAW, "snapshot",
                               *args, str(target.pid), directory()], env=env, text=True, capture_output=True,
                              check=False)
        equal((done.returncode, "expected CAP_SYS_RESOURCE" in done.stderr), (code, code == 6), done.stderr)
        equal(target.state(), "running", "the state")
    job.finish()
    other.finish()


FAILS = """
[ "$1" = --version ] && { echo Version: 4.2; exit; }
while [ "$1" != --work-dir ]; do shift; done
echo "(00.01) Error (criu/util.c:1): rlimit: Can't setup RLIMIT_NOFILE for self" > $2/criu.log
echo "(00.02) Error (criu/sk-inet.c:9): a socket to 10.0.0.1" >> $2/criu.log
echo "(00.03) Error (criu/cr-dump.c:2): Dumping FAILED." >> $2/criu.log
exit 1
"""


def a_dump_that_fails_does_no_harm():
    env = pretended_criu(FAILS)
    path = directory()
    job = Counting()
    said = refused("snapshot", job.pid, path, env=env)
    check("CRIU: a socket to 10.0.0.1 (see " in said, said)
    equal(job.state(), "running", "the state")
    equal(os.listdir(path), [], "what is left in the directory")
    cudaw_ok("snapshot", "--gpu-only", job.pid, path)
    before = sorted(os.listdir(path))
    refused("snapshot", "--stop", job.pid, path, env=env)
    equal(sorted(os.listdir(path)), before, "what is in the directory of an older snapshot")
    cudaw_ok("verify", path)
    job.wait_steps(job.steps() + 3)
    job.finish()


def a_dump_that_fails_where_nobody_listens():
    """What is to be done then is done."""
    path = directory()
    job = Counting()
    with unheard() as nobody:
        done = subprocess.run([CUDAW, "snapshot", str(job.pid), path], check=False, timeout=300,
                              env={**base_environment(), **pretended_criu(FAILS)}, stderr=nobody)
    equal(done.returncode, 1, "the exit code")
    equal(job.state(), "running", "the state")
    equal(os.listdir(path), [], "what is left in the directory")
    job.finish()


def what_is_done_is_no_failure_where_nobody_listens():
    need_criu()
    path = directory()
    job = Counting()
    for output in "/dev/full", None:
        with unheard() as nobody, open(output or os.devnull, "w", encoding="ascii") as full:
            for args in ["snapshot", "--stop", str(job.pid), path], ["restore", path]:
                done = subprocess.run([CUDAW, *args], env=base_environment(), check=False, timeout=300,
                                      stdout=full if output else nobody, stderr=full if output else nobody)
                equal((args, done.returncode, job.is_gone()), (args, 0, args[0] == "snapshot"), "the exit code")
    job.finish()


def a_dump_that_fails_leaves_a_paused_job_paused():
    env = pretended_criu(FAILS)
    path = directory()
    job = Counting()
    cudaw_ok("pause", job.pid)
    said = refused("snapshot", job.pid, path, env=env)
    check(f"{job.pid} stays paused; {path} holds its memory" in said, said)
    equal(job.state(), "paused", "the state")
    nobody_writes_there(path)
    cudaw_ok("resume", job.pid)
    job.wait_steps(job.steps() + 3)
    job.finish()


SLOW = """
[ "$1" = --version ] || while [ -e "$HELD" ]; do sleep 0.05; done
exec "$REAL" "$@"
"""


IN_FLIGHT = 4       # copies of 2 MiB, at most


def a_terminal_shows_how_far_it_is():
    """What takes longer than a second, with the end of a path that is too long for the line."""
    need_criu()
    held = os.path.join(SCRATCH, "held")
    os.environ.update(HELD)
    job = Counting()
    for name in HELD:
        del os.environ[name]
    path = os.path.join(tempfile.mkdtemp(dir=SCRATCH), "long" * 20)
    real = subprocess.run(["sh", "-c", "command -v ${CUDAW_CRIU:-criu}"], capture_output=True,
                          text=True, check=True).stdout.strip()
    env = {**base_environment(), "REAL": real, "HELD": held, **pretended_criu(SLOW)}

    def shown(pattern):
        return [line for line in terminal.lines() if re.match(pattern, line)]

    def copies(way):
        """A few of the 17 at a time, as they are shown: they are not over before there is a rate."""
        amount = rf"\w+ {job.pid}: \w+ .* of 34\.0 MiB"
        while not shown(amount + r", \d+\.\d GB/s, .* left"):
            before = shown(amount)[-1:]
            let_through(way, IN_FLIGHT)
            until(lambda before=before: shown(amount)[-1:] != before, 30, f"more is shown than {before}")
        let_go(way)

    def criu():
        until(lambda: shown(r"CRIU (reads|writes) \.\.\.[long]+/host-1: \d\.\d s"), 30, "it shows CRIU")
        os.unlink(held)

    for way, command in ("out", ("snapshot", "--stop", job.pid, path)), ("in", ("restore", path)):
        terminal = Terminal()
        with open(held, "w", encoding="ascii"):
            hold(way)
        process = ends_with_us(subprocess.Popen([CUDAW, *map(str, command)], stderr=terminal.slave, env=env,
                                                stdout=subprocess.DEVNULL))
        if way == "out":
            copies(way)
        criu()
        if way == "in":
            copies(way)
        equal(process.wait(30 * PATIENCE), 0, "the exit code")
        job.process.poll()
        check(all(len(line) < 90 for line in terminal.lines()), f"a line in {terminal.lines()}")
    job.finish()


def an_interrupt_that_comes_too_late_hides_nothing():
    """The job has ended, so the command says where it is."""
    job, path = Counting(), directory()
    env = pretended_criu(f'[ "$1" = dump ] && kill -INT $PPID\nexec {STAND_IN} "$@"\n')
    done = subprocess.run([CUDAW, "snapshot", "--stop", str(job.pid), path], text=True, check=False,
                          env={**base_environment(), **env}, capture_output=True)
    equal((done.returncode, done.stderr), (0, ""), "the exit code and stderr")
    check("; it is stopped" in done.stdout and job.is_gone(), f"it says {done.stdout!r}")
    cudaw_ok("verify", path)


def limit_file_size():
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))


def a_limit_of_the_file_size_does_no_harm():
    """Of the command: the job has none."""
    need_criu()
    job = Counting()
    for options in ([], ["--stop"]):
        said = refused("snapshot", *options, job.pid, directory(), preexec_fn=limit_file_size)
        check("File too large" in said, said)
        equal(job.state(), "running", "the state")
        job.wait_steps(job.steps() + 3)
    job.finish()


main(without_a_criu_that_will_do, with_another_group_than_the_commands, a_dump_that_fails_does_no_harm,
     a_dump_that_fails_where_nobody_listens, what_is_done_is_no_failure_where_nobody_listens,
     a_dump_that_fails_leaves_a_paused_job_paused,
     an_interrupt_that_comes_too_late_hides_nothing, a_limit_of_the_file_size_does_no_harm,
     a_terminal_shows_how_far_it_is)
