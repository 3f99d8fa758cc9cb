#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""nvJPEG is paused at each moment of its first two seconds, which has broken jobs whose pause was
reported as done: each run ends right, or its pause is refused.

    nvjpeg.py decode|encode|hardware all|memory|driver [RUNS]

hardware: decoded by the JPEG hardware alone. all, memory: cudaw pause --release; the former leaves the
context on the GPU once nvJPEG has loaded libnvcuvid (common/processes/beside.h). driver: the driver's checkpoint
alone, of a native process (cudaw pause --driver); it only counts what breaks.

STEPS in the environment is the number of runs, before RUNS and 200; FROM and TO are the moments of
the first and the last pause, in seconds after the start, 0 and 2.
"""
import os
import sys
import time

from gpulib import Failure, Job, check, cudaw, equal, figure, main

KIND, HOW = sys.argv[1:3]
STEPS = int(os.environ.get("STEPS") or (sys.argv[3:] or ["200"])[0])
FROM, TO = float(os.environ.get("FROM", "0")), float(os.environ.get("TO", "2"))
PAUSE = {"all": ("--release", "all"), "memory": ("--release", "memory"), "driver": ("--driver",)}[HOW]
NO_JOB = 3      # the exit code: the process has not begun to use CUDA


def nvjpeg():
    return Job("nvjpeg", "--encode", int(KIND == "encode"), "--backend", 3 if KIND == "hardware" else 0,
               "--steps", 1000000, "--step-ms", 2, mode="native" if HOW == "driver" else "run")


def digest_of(job):
    """What it prints in the end, some images later."""
    job.wait_steps(job.steps() + 5)
    return job.finish().splitlines()[-1]


def phase(job):
    lines = list(job.lines)
    return ("after" if "created" in lines else "in" if "creating" in lines else "before")


def run(moment):
    """Pause one run at @moment; returns its phase then, the exit code of the pause, and the job."""
    begin = time.monotonic()
    job = nvjpeg()
    time.sleep(max(0, begin + moment - time.monotonic()))
    first = phase(job)
    done = cudaw("pause", *PAUSE, job.pid, timeout=120)
    if done.returncode:
        print(f"# {done.stderr.strip()}")
    else:
        time.sleep(0.05)
        resumed = cudaw("resume", job.pid, timeout=120)
        check(not resumed.returncode, f"the resume fails: {resumed.stderr.strip()}")
    # The library may be created while the pause begins.
    return first if first == phase(job) else "in", done.returncode, job


def broken(job, wanted):
    """Why the run did not come out as it must; empty: it did."""
    try:
        equal(digest_of(job), wanted, "the digest")
    except Failure as failure:
        if job in Job.alive:
            said = job.discard().strip().splitlines()
            return f"{failure}; it said {said[-3:]}"
        return str(failure)
    return ""


def each_moment():
    wanted = digest_of(nvjpeg())
    paused, refused, wrong = {}, {}, 0
    for k in range(STEPS):
        moment = FROM + (TO - FROM) * k / STEPS
        try:
            when, code, job = run(moment)
            why = broken(job, wanted)
        except Failure as failure:
            when, code, why = "?", 0, str(failure)
            for job in list(Job.alive):
                why += f"; it said {job.discard().strip().splitlines()[-3:]}"
        if code != NO_JOB:
            count = refused if code else paused
            count[when] = count.get(when, 0) + 1
        if why:
            wrong += 1
            print(f"# at {moment * 1000:.0f} ms, {when} creation, "
                  f"{'not paused' if code else 'paused'}: {why}", flush=True)
    print(f"# paused: {paused}, refused: {refused}, wrong: {wrong}")
    outside = [sum(count.get(when, 0) for when in ("before", "after")) for count in (paused, refused)]
    figure(f"nvjpeg_{KIND}_{HOW}_wrong", wrong, "runs")
    figure(f"nvjpeg_{KIND}_{HOW}_paused_in_creation", paused.get("in", 0), "runs")
    figure(f"nvjpeg_{KIND}_{HOW}_paused_outside", outside[0] / max(1, sum(outside)), "of_all")
    check(sum(outside), "no pause came outside of the library's creation")
    if HOW == "driver":
        return
    equal(wrong, 0, "the number of runs that did not come out right")
    check(outside[0] >= 0.9 * sum(outside), f"of {sum(outside)} pauses outside of the library's "
          f"creation only {outside[0]} succeeded")


main((f"{KIND} {HOW}", each_moment))
