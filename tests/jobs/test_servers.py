#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The commands of docs/servers.md, as the page has them, with the server of examples."""
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request

from restorelib import need_criu
from simlib import REPOSITORY, SCRATCH
from gpulib import BUILD, PATIENCE, RUNTIME_DIR, Skip, base_environment, check, equal, main, until
from json_docs import block
from proclib import is_zombie

PAGE = "docs/servers.md"
HERE = {"python inference_server.py 8000 16384": f"{sys.executable} {REPOSITORY}/examples/inference_server.py 0 16",
        " --gpu 0=1": "",
        "sudo ": "", "/elsewhere": f"{SCRATCH}/elsewhere"}


def shell(words, further=(), within=(), **options):
    """That block of the page, here, with a home of its own; within these commands."""
    text = block(PAGE, words)
    for there, here in {**HERE, **dict(further)}.items():
        text = text.replace(there, here)
    env = {**base_environment(), "HOME": SCRATCH, "PATH": f"{BUILD}/bin:{os.environ['PATH']}"}
    return subprocess.Popen([*within, "bash", "-ec", text], cwd=SCRATCH, text=True, env=env,
                            **{"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, **options})


def ok(words, *where):
    process = shell(words, *where)
    said = process.communicate(timeout=100 * PATIENCE)[0]
    equal(process.returncode, 0, f"the exit code ({said})")
    return said


def pids():
    found = subprocess.run([f"{BUILD}/bin/cudaw", "ps", "-o", "pid", "server"], env=base_environment(),
                           capture_output=True, text=True, check=False).stdout.split()
    return [int(pid) for pid in found[1:]]


def pid_and_port():
    with open(f"{SCRATCH}/server.log", encoding="ascii") as log:
        port = re.search(r"serves port (\d+)", log.read())
    return port and len(pids()) == 1 and (pids()[0], int(port[1]))


def serve(words):
    shell(words, start_new_session=True)
    until(lambda: os.path.exists(f"{SCRATCH}/server.log") and pid_and_port(), 30, "it serves")
    return pid_and_port()


def end(pid):
    os.kill(pid, signal.SIGKILL)
    until(lambda: is_zombie(pid), 10, "it has ended")


def answer(port):
    with urllib.request.urlopen(f"http://localhost:{port}", timeout=30 * PATIENCE) as answered:
        return answered.read()


def moved():
    need_criu()
    os.mkdir(f"{SCRATCH}/elsewhere")
    pid, port = serve("16384 > server.log")
    equal(answer(port), b"42", "its answer")
    ok("snapshot --check")
    said = ok("snapshot --stop --incremental")
    check(os.path.exists(f"{SCRATCH}/elsewhere/server/manifest.json"), f"the copy is there ({said})")
    equal(pid_and_port(), (pid, port), "the process and the port")
    equal(answer(port), b"42", "its answer after the move")
    end(pid)
    os.unlink(f"{SCRATCH}/server.log")


@contextlib.contextmanager
def network():
    """The commands that run others in a network that only this test has."""
    own = ["unshare", "--net", "--mount", "sh", "-c",
           "mkdir -p /run/netns && mount -t tmpfs none /run/netns && echo made && exec sleep infinity"]
    with subprocess.Popen(own, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as holder:
        said = holder.stdout.readline()
        try:
            if said != "made\n":
                raise Skip(f"no network of its own: {said}")
            yield ["nsenter", "--target", str(holder.pid), "--net", "--mount"]
        finally:
            holder.kill()


def start_copy(number, within, log):
    here = {"r1": f"r{number}", "10.77.1.": f"10.77.{number}.",
            "none /tmp": f"none /tmp && mount -t tmpfs -o mode=700 none {RUNTIME_DIR}"}
    ok("ip netns add", here, within)
    equal(shell("restore --wait", here, within, stdout=log).wait(20 * PATIENCE), 0, "the exit code")


def copies():
    """Two at a time, from one directory."""
    need_criu()
    for program in ("ip", "nsenter", "unshare"):
        if not shutil.which(program):
            raise Skip(f"{program} is missing")
    _, port = serve("0.0.0.0")
    ok("snapshot --stop server")
    with network() as within, open(f"{SCRATCH}/copies.log", "w", encoding="ascii") as log:
        try:
            for number in (1, 2):
                start_copy(number, within, log)
            for number in (1, 2):
                asked = [*within, sys.executable, "-c", "import urllib.request; "
                         f"print(urllib.request.urlopen('http://10.77.{number}.2:{port}').read().decode())"]
                until(lambda asked=asked: subprocess.run(asked, capture_output=True, check=False).stdout == b"42\n",
                      30, f"copy {number} answers")
            equal(len(pids()), 2, "the copies")
        finally:
            for pid in pids():
                end(pid)


main(moved, copies)
