#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A machine of eight GPUs, of which each process sees others, in an order of its own: commands and cudawd mean the same
GPU by the same UUID."""
import json
import os

from simlib import gpus_used, unsanitized
from turnslib import FOREVER, MEMORY_MIB, counting, events, finish, listed, start_daemon, started, take_turns
from gpulib import BUILD, Job, cudaw, cudaw_ok, equal, jobs, main, until

GPUS = 8
FITS_ONCE = 160     # MiB, of which a GPU has no room for twice as much
os.environ["CUDAW_SIM_DEVICES"] = str(GPUS)


def seen_from(first):
    """All GPUs, from this one on downwards."""
    return ",".join(str((first - i) % GPUS) for i in range(GPUS))


def numbers(row):
    """The machine's numbers of its GPUs: the simulator's UUIDs end in them."""
    return [int(gpu["uuid"][-2:], 16) for gpu in row["gpu"]]


def a_rank_on_each():
    """Each calls its own GPU 0."""
    ranks = "".join(f"CUDA_VISIBLE_DEVICES={seen_from(i)} $0 --steps {FOREVER} --step-ms 50 & " for i in range(GPUS))
    job = Job("/bin/sh", "-c", ranks + "wait", os.path.join(BUILD, "tests", "programs", "counter"), name="eight",
              env={"CUDAW_SIM_MEMORY": str(MEMORY_MIB << 20)})
    until(lambda: len(jobs()) == GPUS, 30, "all ranks use CUDA")
    equal(sorted(number for row in jobs().values() for number in numbers(row)), list(range(GPUS)), "their GPUs")
    equal({gpu["ordinal"] for row in jobs().values() for gpu in row["gpu"]}, {0}, "their own numbers for them")
    equal(all(gpus_used()), True, "whether each GPU is in use")
    equal(cudaw("pause", "eight").returncode, 0, "the exit code of cudaw pause")
    equal(gpus_used(), [0] * GPUS, "the bytes on the GPUs")
    equal({row["state"] for row in jobs().values()}, {"paused"}, "the states")
    cudaw_ok("resume", "eight")
    equal({row["state"] for row in jobs().values()}, {"running"}, "the states")
    job.discard()


def doctor_names_those_it_sees():
    os.environ["CUDA_VISIBLE_DEVICES"] = "6,1"
    checks = {row["check"]: row["value"] for row in json.loads(cudaw_ok("doctor", "--json"))["checks"]}
    del os.environ["CUDA_VISIBLE_DEVICES"]
    equal([checks[f"GPU {i}"][-2:] for i in range(2)], ["06", "01"], "the ends of the UUIDs that doctor shows")
    equal("GPU 2" in checks, False, "whether it shows a third one")


def only_jobs_of_the_same_gpu_take_turns():
    """The first two call the same GPU by other numbers, and the third one has their number on another one."""
    start_daemon()
    first, second, alone = (counting(name, FITS_ONCE, FOREVER, CUDA_VISIBLE_DEVICES=visible)
                            for name, visible in (("first", "5,2"), ("second", "5"), ("alone", "2,5")))
    take_turns([first, second])
    take_turns([alone])
    equal({row["name"]: numbers(row) for row in listed()}, {"first": [5], "second": [5], "alone": [2]}, "their GPUs")
    equal(events("ends", "alone"), [], "the turns that the job alone has given up")
    for job in (first, second, alone):
        finish(job)


def one_with_two_gpus_gives_a_part_of_each():
    start_daemon()
    both = []
    for name in ("first", "second"):
        both.append(started(name, "wide", "--mib", FITS_ONCE, "--chunk", 20, "--steps", FOREVER, "--step-ms", 2))
        both[-1].wait_steps(1)
    take_turns(both)
    equal([event for event in events("gives") if event["text"].startswith("all")], [], "the orders to give all")
    for job in both:
        finish(job)


main(a_rank_on_each, doctor_names_those_it_sees, unsanitized(only_jobs_of_the_same_gpu_take_turns),
     unsanitized(one_with_two_gpus_gives_a_part_of_each))
