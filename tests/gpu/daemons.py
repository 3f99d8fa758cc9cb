# SPDX-License-Identifier: Apache-2.0
"""cudawd of the tests in which jobs take turns, and what it says of them."""
import json
import os
import signal
import subprocess

import gpulib
from gpulib import BUILD, RUNTIME_DIR, after_case, base_environment, cudaw, cudaw_ok, hog
from harness import ends_with_us, until

CUDAWD = os.path.join(BUILD, "bin", "cudawd")
daemons = []


def start_daemon(*options, env=None):
    os.makedirs(RUNTIME_DIR, mode=0o700, exist_ok=True)
    process = ends_with_us(subprocess.Popen([CUDAWD, *options], env={**base_environment(), **(env or {})}))
    daemons.append(process)
    until(lambda: cudaw("turns").returncode == 0, 10, "cudawd answers")
    return process


def end_daemons(good):
    if not good and daemons:
        daemons[-1].send_signal(signal.SIGCONT)     # a case may have stopped it
        print("# the last events:\n# " + cudaw("events").stdout[-3000:].replace("\n", "\n# "), flush=True)
    while daemons:
        daemon = daemons.pop()
        daemon.kill()
        daemon.wait()


after_case.append(end_daemons)


def listed():
    """A row for each process."""
    return json.loads(cudaw_ok("turns", "--json"))["members"]


def members():
    return {row["pid"]: row for row in listed()}


def leave(mib):
    """Take the GPU's memory but for @mib."""
    free = int(gpulib.smi("gpu=memory.free")[0][0])
    return hog("--mib", free - mib)[0]
