# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests of snapshots."""
import contextlib
import fcntl
import os
import socket
import tempfile

from simlib import SCRATCH, TSAN
from gpulib import RUNTIME_DIR, Job, ask, check, told  # noqa: F401

ENDLESS = ("--steps", 1000000, "--step-ms", 10)
COUNTER_MIB = 16
LARGE_MIB = 64 if TSAN else 256     # enough for something to happen while it is copied


def directory():
    return os.path.join(tempfile.mkdtemp(dir=SCRATCH), "snapshot")


def connected(job, request=b""):
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(20)
    client.connect(os.path.join(RUNTIME_DIR, f"{job.pid}.sock"))
    client.sendall(request)
    return client


def end_of(client):
    """The last line of the rest of the answer; of what there is where it does not end."""
    text = b""
    with contextlib.suppress(socket.timeout):
        while chunk := client.recv(65536):
            text += chunk
    return (text.decode().splitlines() or ["nothing"])[-1]


def counter(mib=COUNTER_MIB, **env):
    job = Job("counter", "--mib", mib, *ENDLESS, env=env)
    job.wait_steps(3)
    return job


def finish(job):
    check("every word right" in job.finish(), "the job did not verify its memory")


def contents(path):
    return sorted(os.listdir(path)) if os.path.exists(path) else []


@contextlib.contextmanager
def no_host_memory():
    """Others are about to take it, as checkpoint/host/promises.h has it; a job must have paused before."""
    with open(os.path.join(RUNTIME_DIR, "host-memory.lock"), "r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1 << 24, 1 << 62)
        yield
