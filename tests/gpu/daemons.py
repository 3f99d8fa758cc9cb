# SPDX-License-Identifier: Apache-2.0
"""cudawd of the tests in which jobs take turns, what it says of them, and two jobs that do."""
import json
import os
import signal
import subprocess

import gpulib
from gpulib import (BUILD, RUNTIME_DIR, Job, after_case, base_environment, check, cudaw, cudaw_ok, figure, hog,
                    same_lines)
from harness import ends_with_us, judge_end, until

TURNS = ("--quantum", "0.3")
CUDAWD = os.path.join(BUILD, "bin", "cudawd")
daemons = []


def start_daemon(*options, env=None, **settings):
    """Turns are short. @settings: of those that are no options."""
    os.makedirs(RUNTIME_DIR, mode=0o700, exist_ok=True)
    process = ends_with_us(subprocess.Popen([CUDAWD, *options], env={**base_environment(), **(env or {})}))
    daemons.append(process)
    words = [f"{key}={value}" for key, value in {"residence": 0.2, **settings}.items()]
    until(lambda: cudaw("turns", "set", *words).returncode == 0, 10, "cudawd answers")
    return process


def end_daemons(good):
    if not good and daemons:
        daemons[-1].send_signal(signal.SIGCONT)     # a case may have stopped it
        print("# the last events:\n# " + cudaw("events").stdout[-3000:].replace("\n", "\n# "), flush=True)
    for daemon in daemons:
        daemon.kill()
    ended = [daemon.wait() for daemon in daemons]
    daemons.clear()
    # It aborts if its books are wrong, and a job that loses it runs on.
    for status in ended:
        judge_end("cudawd", status)
        check(status in (0, -signal.SIGKILL, -signal.SIGTERM), f"cudawd has ended: {status}")


after_case.append(end_daemons)


def listed():
    """A row for each process."""
    return json.loads(cudaw_ok("turns", "--json"))["members"]


def members():
    return {row["pid"]: row for row in listed()}


def leave(mib):
    """Take the GPU's memory except @mib."""
    free = int(gpulib.smi("gpu=memory.free")[0][0])
    return hog("--mib", free - mib)[0]


def started(name, program, *args):
    return Job(program, *args, name=name, env={"CUDAW_TURNS": "user", "CUDAW_RELEASE": "memory"})


def turns():
    return sum(row["turns"] for row in members().values())


def two(program, *args):
    first = started("first", program, *args)
    until(lambda: first.pid in members(), 60, "the first has joined")
    return first, started("second", program, *args)


def taking_turns(count, free_mib, program, *args):
    """Two jobs of @program print what one prints natively, after at least @count turns. A third leaves @free_mib."""
    def case():
        native = Job(program, *args, mode="native").result(100)
        other = leave(free_mib)
        start_daemon(*TURNS)
        both, most = two(program, *args), [0]

        def ended():
            most.append(max(most[-1], turns()))
            return any(job.ended() for job in both)
        until(ended, 120, "one of them makes all its steps")
        for job in both:
            same_lines(job.result(120), native, "of a job that takes turns")
        figure(f"turns_{os.path.splitext(program)[0]}", most[-1], "")
        check(most[-1] >= count, f"they had {most[-1]} turns, not {count}")
        other.discard()
    return f"{program} {' '.join(map(str, args))}", case
