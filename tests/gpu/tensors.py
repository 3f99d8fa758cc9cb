#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tensors.py [COUNT]: two processes of PyTorch that pass CUDA tensors by queues of torch.multiprocessing
are paused together COUNT times with either release, and print what the native run prints.
"""
import sys
import time

from gpulib import Job, cudaw_ok, equal, jobs, main, process_used, same_lines, seeded

COUNT = int(sys.argv[1]) if len(sys.argv) > 1 else 3
STEPS, STEP_MS, PROCESSES = 300, 10, 2
native = []


def started(**how):
    return Job("torch_queue.py", "--steps", STEPS, "--step-ms", STEP_MS, **how)


def states():
    return [row["state"] for row in jobs().values() if row["name"] == "tensors"]


def through_pauses(release):
    def case():
        if not native:
            native.append(started(mode="native").result())
        job, rng = started(name="tensors"), seeded()
        job.until(lambda: len(states()) == PROCESSES, 120, "both processes use CUDA")
        for step in sorted(rng.sample(range(5, STEPS * 3 // 5), COUNT)):
            job.wait_steps(step)
            time.sleep(rng.uniform(0, 0.02))
            cudaw_ok("pause", "--release", release, "tensors")
            equal(states(), ["paused"] * PROCESSES, "the states after cudaw pause")
            if release == "all":
                equal({process_used(pid) or 0 for pid in jobs()}, {0}, "MiB that are still used")
            job.check_still(0.1)
            cudaw_ok("resume", "tensors")
            equal(states(), ["running"] * PROCESSES, "the states after cudaw resume")
        same_lines(job.result(), native[0], f"after {COUNT} pauses")
    return f"tensors in queues, {release}", case


main(through_pauses("memory"), through_pauses("all"))
