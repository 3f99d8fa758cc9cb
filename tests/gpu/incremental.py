#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An incremental snapshot writes what changed, which the GPU finds."""
import json
import os
import shutil
import subprocess

from gpulib import BUILD, SCRATCH, Job, base_environment, check, cudaw_ok, equal, figure, main

DIGEST_GIB = 16
DIGEST_TBPS = 1
CHANGED_MOST = 0.12     # of a full one, after a step of a model of which 90 % is frozen


def digests_at_the_speed_of_memory():
    path = os.path.join(BUILD, "tests", "programs", "digests")
    done = subprocess.run([path, str(DIGEST_GIB)], check=True, capture_output=True, text=True,
                          timeout=60, env=base_environment())
    rate = float(done.stdout.split("figure digest ")[1].split()[0])
    figure("digest", rate, "TB/s")
    check(rate >= DIGEST_TBPS, f"digests are taken at {rate} TB/s, less than {DIGEST_TBPS}")


def step(job, number):
    job.tell()
    job.wait_steps(number)


def snapshot(job, directory, *options):
    told = json.loads(cudaw_ok("snapshot", "--gpu-only", "--json", *options, job.pid, directory,
                               timeout=240))
    equal(job.state(), "running", "the state after a snapshot")
    return told["totals"]["written"]


def one_step_of_a_fine_tuning():
    directory = os.path.join(SCRATCH, "incremental")
    job = Job("finetune.py")
    job.wait_line("ready", timeout=120)
    step(job, 1)
    step(job, 2)
    full = snapshot(job, directory)
    step(job, 3)
    changed = snapshot(job, directory, "--incremental")
    figure("full", full, "B")
    figure("changed", changed, "B")
    check(0 < changed <= CHANGED_MOST * full,
          f"{changed} bytes were written after one step, of {full} in all")
    nothing = snapshot(job, directory, "--incremental")
    check(nothing < changed / 10, f"{nothing} bytes were written after no step")
    cudaw_ok("verify", directory, timeout=240)
    step(job, 4)
    job.process.stdin.close()
    job.result()
    shutil.rmtree(directory)


main(digests_at_the_speed_of_memory, one_step_of_a_fine_tuning)
