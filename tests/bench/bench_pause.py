#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How fast a job of many GiB is paused and resumed, cold (the first time) and warm, beside the
driver's own process checkpoint of the same job run natively, and a plain pinned copy.

BUILD is the build folder. Exit status: 1 where a target is missed.
"""
import argparse
import os
import subprocess
import sys
import time

from benchlib import Table

from gpulib import BUILD, Job, Skip, base_environment, check, cudaw_ok, idle_gpu_used

# What a pause or a resume may take of the driver's checkpoint or restore.
TARGETS = {"pause": 1 / 5, "resume": 1 / 3}


def figures_of(program, *args):
    """Run a program that prints "figure NAME VALUE UNIT"; returns the values by name."""
    done = subprocess.run([os.path.join(BUILD, "tests", program), *map(str, args)], check=True,
                          capture_output=True, text=True, timeout=240, env=base_environment())
    lines = (line.split() for line in done.stdout.splitlines())
    return {words[1]: float(words[2]) for words in lines if words[0] == "figure"}


def start_job(mib, **options):
    job = Job("counter", "--mib", mib, "--allocs", 64, "--steps", 1000000, "--step-ms", 50,
              **options)
    job.wait_steps(2, timeout=120)
    return job


def timed(verb, job):
    """Seconds of `cudaw VERB`, as its user sees them."""
    start = time.monotonic()
    cudaw_ok(verb, job.pid, timeout=300)
    return time.monotonic() - start


def end_verified(job):
    check("every word right" in job.finish(timeout=180), "the job did not verify its memory")


def add_row(table, what, gigabytes, seconds, target=None):
    rate = gigabytes / seconds
    verdict = table.verdict(seconds, target) if target else ""
    table.add(what, f"{seconds:.3f} s", f"{rate:.1f} GB/s", verdict)
    table.figure(what.replace(" ", "_"), seconds, "s")


def measure(table, mib):
    gigabytes = mib * (1 << 20) / 1e9
    idle_gpu_used()
    native = start_job(mib, mode="native")
    driver = figures_of("programs/drvckpt", "--pid", native.pid)
    end_verified(native)
    driver = {"pause": driver["driver_lock"] + driver["driver_checkpoint"],
              "resume": driver["driver_restore"] + driver["driver_unlock"]}
    for verb, seconds in driver.items():
        add_row(table, f"driver checkpoint {verb}", gigabytes, seconds)
    for release in ("full", "memory"):
        env = {"CUDAW_RELEASE": "memory"} if release == "memory" else None
        job = start_job(mib, env=env)
        for times in ("cold", "warm"):
            for verb in ("pause", "resume"):
                add_row(table, f"{verb} {release} {times}", gigabytes, timed(verb, job),
                        driver[verb] * TARGETS[verb])
            job.wait_steps(job.steps() + 2)
        end_verified(job)
    for name, rate in figures_of("bench/bench_copy").items():
        table.add(name.replace("_", " ") + " (pinned)", "", f"{rate:.1f} GB/s", "")
        table.figure(name, rate, "GB/s")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--gib", type=int, default=32, help="what the job holds (32)")
    parser.add_argument("--results", metavar="DIR", help="write DIR/results.json")
    args = parser.parse_args()
    table = Table(f"{args.gib} GiB", "time", "rate", "target")

    try:
        measure(table, args.gib << 10)
    except Skip as skip:
        print(f"skipped: {skip}")
        return 77
    finally:
        table.show()
        table.write(args.results)
    return 1 if table.missed else 0


if __name__ == "__main__":
    sys.exit(main())
