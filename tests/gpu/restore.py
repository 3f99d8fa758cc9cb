#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""restore.py [--gpus] [--translated] [--managed] PROGRAM [ARG]...: stopped at a random step, its
snapshot copied and the original removed, the program goes on from the copy, twice in a row, and
prints what the undisturbed native run prints. With --gpus it goes on on the other of two GPUs, and
then back; with --translated it has translated addresses, and with --managed its managed memory is
host memory. ARGs hold --steps N; an ARG LOG stands for a file that the program appends to, in which
the same must be. Wants CRIU.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile

from detached import Detached, why_no_criu
from gpulib import (SCRATCH, Job, Skip, check, cudaw_ok, equal, figure, gpu_count, jobs, main,
                    same_lines, seeded)

GPUS = sys.argv[1] == "--gpus"
TRANSLATED = sys.argv[1 + GPUS] == "--translated"
MANAGED = sys.argv[1 + GPUS + TRANSLATED] == "--managed"
PROGRAM, *ARGS = sys.argv[1 + GPUS + TRANSLATED + MANAGED:]
STEPS = int(ARGS[ARGS.index("--steps") + 1])


def directory():
    return os.path.join(tempfile.mkdtemp(dir=SCRATCH), "snapshot")


def run_args(log):
    return [log if arg == "LOG" else arg for arg in ARGS]


def logged(log):
    """What is in the log file; empty where the program has none."""
    if "LOG" not in ARGS:
        return ""
    with open(log, encoding="utf-8") as file:
        return file.read()


def gpus(path):
    """The UUIDs of the GPUs that the process of a snapshot saw."""
    return [device["uuid"] for device in json.loads(cudaw_ok("inspect", "--json", path))["devices"]]


def report(what, said):
    for phase in said["phases"]:
        figure(f"{what}_{phase['name']}", phase["ms"], "ms")


def same_output_from_snapshots():
    if why_no_criu():
        raise Skip(why_no_criu())
    if GPUS and gpu_count() < 2:
        raise Skip(f"2 GPUs needed, {gpu_count()} here")
    logs = [os.path.join(SCRATCH, name) for name in ("native.log", "job.log")]
    native = Job(PROGRAM, *run_args(logs[0]), mode="native").result(timeout=240)
    if TRANSLATED:
        os.environ["CUDAW_ADDRESSING"] = "translated"
    if MANAGED:
        os.environ["CUDAW_MANAGED"] = "host"
    rng = seeded()
    job = Detached(PROGRAM, *run_args(logs[1]))
    for number in (1, 2):
        job.wait_steps(rng.randrange(STEPS * number // 4, STEPS * (number + 1) // 4), timeout=120)
        first, copy = directory(), directory()
        said = json.loads(cudaw_ok("snapshot", "--stop", "--json", job.pid, first, timeout=240))
        report(f"snapshot_{number}", said)
        figure(f"snapshot_{number}_written_bytes", said["totals"]["written"], "B")
        figure(f"snapshot_{number}_image_bytes", said["image"], "B")
        check(job.is_gone(), "the job is still there")
        steps = job.steps()
        subprocess.run(["cp", "-a", first, copy], check=True)
        shutil.rmtree(first)
        # There, and back: each time its GPUs in the other order.
        here = gpus(copy)
        other = ["--gpu", f"0={here[1]}"] if GPUS else []
        said = json.loads(cudaw_ok("restore", "--json", *other, copy, timeout=240))
        report(f"restore_{number}", said)
        row = jobs()[job.pid]
        equal(row["state"], "running", "the state")
        equal(row["addressing"], "translated" if TRANSLATED else "mapped", "the addressing")
        equal([gpu["uuid"] for gpu in row["gpu"]], [here[1 if GPUS else 0]], "its GPU")
        job.wait_steps(steps + 1)
        shutil.rmtree(copy)
    same_lines("\n".join(job.wait_end()), native, "after two restores")
    same_lines(logged(logs[1]), logged(logs[0]), "of the log after two restores")


main((f"{PROGRAM} from snapshots", same_output_from_snapshots))
