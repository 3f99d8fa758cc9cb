#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The commands of docs/servers.md, as the page has them, with the server of examples."""
import os
import re
import signal
import subprocess
import sys
import urllib.request

from restorelib import need_criu
from simlib import REPOSITORY, SCRATCH
from gpulib import BUILD, PATIENCE, base_environment, check, equal, main, until
from json_docs import block
from proclib import is_zombie

PAGE = "docs/servers.md"
HERE = {"python inference_server.py 8000 16384": f"{sys.executable} {REPOSITORY}/examples/inference_server.py 0 16",
        "sudo ": "", "/elsewhere": f"{SCRATCH}/elsewhere"}


def shell(words, **options):
    """That block of the page, here, with a home of its own."""
    text = block(PAGE, words)
    for there, here in HERE.items():
        text = text.replace(there, here)
    env = {**base_environment(), "HOME": SCRATCH, "PATH": f"{BUILD}/bin:{os.environ['PATH']}"}
    return subprocess.Popen(["bash", "-ec", text], cwd=SCRATCH, text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, env=env, **options)


def ok(words):
    process = shell(words)
    said = process.communicate(timeout=100 * PATIENCE)[0]
    equal(process.returncode, 0, f"the exit code ({said})")
    return said


def pid_and_port():
    with open(f"{SCRATCH}/server.log", encoding="ascii") as log:
        port = re.search(r"serves port (\d+)", log.read())
    found = subprocess.run([f"{BUILD}/bin/cudaw", "ps", "-o", "pid", "server"], env=base_environment(),
                           capture_output=True, text=True, check=False).stdout.split()
    return port and len(found) == 2 and (int(found[1]), int(port[1]))


def answer(port):
    with urllib.request.urlopen(f"http://localhost:{port}", timeout=30 * PATIENCE) as answered:
        return answered.read()


def moved():
    need_criu()
    os.mkdir(f"{SCRATCH}/elsewhere")
    shell("cudaw run --name server", start_new_session=True)
    until(lambda: os.path.exists(f"{SCRATCH}/server.log") and pid_and_port(), 30, "it serves")
    pid, port = pid_and_port()
    equal(answer(port), b"42", "its answer")
    ok("snapshot --check")
    said = ok("snapshot --stop")
    check(os.path.exists(f"{SCRATCH}/elsewhere/server/manifest.json"), f"the copy is there ({said})")
    equal(pid_and_port(), (pid, port), "the process and the port")
    equal(answer(port), b"42", "its answer after the move")
    os.kill(pid, signal.SIGKILL)
    until(lambda: is_zombie(pid), 10, "it has ended")


main(moved)
