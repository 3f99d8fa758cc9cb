#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs that join the machine's daemon as /etc/cudaw.conf says. This test has an /etc and a /run of its own."""
import contextlib
import ctypes
import os
import select
import subprocess
import time

from daemonlib import Daemon
from simlib import unsanitized
from gpulib import PATIENCE, SCRATCH, Job, Skip, cudaw, cudaw_ok, equal, main, until

CONF = "/etc/cudaw.conf"
CLONE_NEWNS = 0x20000
MS_REC, MS_PRIVATE, MS_BIND = 0x4000, 0x40000, 0x1000
libc = ctypes.CDLL(None, use_errno=True)


def own_directories():
    """Mount a copy of /etc, and an empty /run."""
    if os.path.exists("/run/cudaw-test"):
        return
    etc = os.path.join(SCRATCH, "etc")
    os.makedirs(etc, exist_ok=True)
    subprocess.run(["cp", "-a", "/etc/.", etc], stderr=subprocess.DEVNULL, check=False)
    if (libc.unshare(CLONE_NEWNS) or libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None) or
            libc.mount(etc.encode(), b"/etc", None, MS_BIND, None) or
            libc.mount(b"none", b"/run", b"tmpfs", 0, b"mode=0755")):
        raise Skip(f"nothing can be mounted: {os.strerror(ctypes.get_errno())}")
    os.mkdir("/run/cudaw-test")
    os.mkdir("/run/cudaw")


def say(text):
    own_directories()
    with contextlib.suppress(FileNotFoundError):
        os.unlink(CONF)
    if text is not None:
        with open(CONF, "w", encoding="ascii") as file:
            file.write(text)


def started(mode="run", **env):
    job = Job("counter", "--steps", 1000000, "--step-ms", 10, mode=mode, env=env)
    job.wait_steps(3)
    return job


def ended(job):
    job.process.terminate()
    job.process.wait(60 * PATIENCE)


def jobs_join_if_it_says_so():
    say("# all jobs\n[turns]\njoin = node\n")
    daemon = Daemon("/run/cudaw/cudawd.sock")
    for mode in ("run", "path"):
        job = started(mode)
        equal(daemon.joined().said("pid"), str(job.pid))
        ended(job)
    daemon.end()


def others_do_not():
    own_directories()
    daemon = Daemon("/run/cudaw/cudawd.sock")
    for text, env, says in ((None, {}, ""), ("", {}, ""), ("[turns]\njoin = off\n", {}, ""),
                            ("[turns]\njoin = node\n", {"CUDAW_TURNS": "off"}, ""),
                            ("[turns]\njoin = node\n", {"CUDAW_TURNS": "/no/such"}, ""),
                            ("[turns]\njoin = nodes\n", {}, "join: expected node or off; off is used")):
        say(text)
        job = started(**env)
        time.sleep(0.3)
        equal(select.select([daemon.socket], [], [], 0)[0], [], f"who connects with {text!r}")
        equal(says in job.stderr() and bool(says) == bool(job.stderr()), True, job.stderr())
        ended(job)
    daemon.end()


def the_command_asks_that_daemon():
    say("[turns]\njoin = node\n")
    program = os.path.join(os.environ.get("BUILD", "build"), "bin", "cudawd")
    daemon = subprocess.Popen([program, "--socket", "/run/cudaw/cudawd.sock"])
    try:
        until(lambda: cudaw("turns").returncode == 0, 10, "cudawd answers")
        equal(f'"pid": {daemon.pid}' in cudaw_ok("turns", "--json"), True, "the daemon that is asked")
        equal(cudaw_ok("run", "--turns", "--", "sh", "-c", "echo $CUDAW_TURNS"), "\n")
    finally:
        daemon.kill()
        daemon.wait()


main(jobs_join_if_it_says_so, others_do_not, unsanitized(the_command_asks_that_daemon))
