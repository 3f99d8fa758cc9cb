#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The GPU test of memory that the program maps by itself, on the simulated driver; and what a
released handle is worth.
"""
import json
import os

from simlib import SANITIZED, SCRATCH, gpus_used, shared
from gpulib import Job, check, cudaw, cudaw_ok, equal, main
from harness import REPEATS

UNSUPPORTED = 6     # the exit code of cudaw pause
EXPORTED_STEPS = 3
FAR = 4 << 20           # the object on the other GPU
GPUS = os.environ["CUDAW_SIM_SHARED"] + "2"
TWO_GPUS = {"CUDAW_SIM_DEVICES": "2", "CUDAW_SIM_SHARED": GPUS}
LEAST = 8 * (4 << 20)   # as in objects.py, for the chunks of the jobs here


def released_handles_are_refused():
    job = Job("objects", "--handles", 1, "--steps", 4)
    lines = job.result().splitlines()
    for expected in ("released: properties 1, map 1, release 1",
                     "a mapped handle that was released: map 1, release 1"):
        check(expected in lines, f"'{expected}' is not in {lines}")


def none_of_it_is_counted_as_the_drivers():
    job = Job("objects", "--steps", 1000000, "--each-line", 1)
    job.make_steps(10)
    status = job.status()
    equal(status["left_to_driver"], 0, "the bytes that are left to the driver")
    check(status["carried"] >= LEAST, f"{status['carried']} bytes are carried")
    job.pause()
    job.resume()
    check("every word right" in job.finish(), "the job did not verify its memory")


def exported_objects_stay_with_the_driver():
    """Until the program frees them: then nothing of them is left."""
    job = Job("objects", "--exports", EXPORTED_STEPS, "--steps", 1000000, "--each-line", 1,
              env={"CUDAW_TO_DRIVER": "exports"})
    job.make_steps(EXPORTED_STEPS)
    equal(job.status()["left_to_driver"], 2 * (4 << 20), "the bytes that are left to the driver")
    done = cudaw("pause", job.pid)
    equal(done.returncode, UNSUPPORTED, "the exit code of cudaw pause")
    for reason in ("1 allocation exported (cuMemExportToShareableHandle)",
                   "1 allocation exported (cuMemGetHandleForAddressRange)"):
        check(reason in done.stderr, f"cudaw pause says {done.stderr!r}")
    cudaw_ok("pause", "--release", "memory", job.pid)
    job.resume()
    job.make_steps(3)
    equal(job.status()["left_to_driver"], 0, "the bytes that are left to the driver in the end")
    job.pause()
    job.resume()
    check("every word right" in job.finish(), "the job did not verify its memory")


def memory_of_a_gpu_without_a_context():
    """It is carried, by a context that has access to it."""
    for release in ("all", "memory"):
        for other in (1, 2):
            job = Job("objects", "--other", other, "--steps", 1000000, "--each-line", 1,
                      env={**TWO_GPUS, "CUDAW_RELEASE": release})
            job.make_steps(3)
            for _ in range(2):
                check(gpus_used(GPUS)[1] >= FAR, "the job uses nothing of GPU 1")
                job.pause()
                equal(gpus_used(GPUS)[1], 0, "the bytes in use on GPU 1 during a pause")
                job.resume()
                job.make_steps(1)
            equal(job.status()["left_to_driver"], 0, "the bytes that are left to the driver")
            check("every word right" in job.finish(), "the job did not verify its memory")


def memory_of_a_gpu_that_no_context_reaches():
    """It is counted, and left to the driver."""
    job = Job("objects", "--other", 2, "--steps", 1000000, "--each-line", 1,
              env={**TWO_GPUS, "CUDAW_SIM_NO_PEERS": "1"})
    job.make_steps(3)
    for release, left in ("memory", FAR), ("all", 0):
        cudaw_ok("pause", "--release", release, job.pid)
        equal(gpus_used(GPUS)[1], left, "the bytes in use on GPU 1 during a pause")
        equal(job.status()["left_to_driver"], left, "the bytes that are left to the driver in a pause")
        job.resume()
        equal(job.status()["left_to_driver"], FAR, "the bytes that are left to the driver")
        job.make_steps(1)
    check("every word right" in job.finish(), "the job did not verify its memory")


def threads_change_mappings_between_pauses():
    for release in ("all", "memory"):
        job = Job("objects", "--threads", 4, "--steps", 1000000, "--step-ms", 10,
                  env={"CUDAW_RELEASE": release, "CUDAW_VERIFY": "1"})
        for _ in range(4 * REPEATS):
            job.wait_steps(job.steps() + 3)
            job.pause()
            job.resume()
        check("every word right" in job.finish(), "the job did not verify its memory")


def manifest_of(program):
    job, path = Job(program, "--steps", 1000000, "--each-line", 1), os.path.join(SCRATCH, program)
    job.make_steps(3)
    cudaw_ok("snapshot", "--gpu-only", job.pid, path)
    job.finish()
    with open(os.path.join(path, "manifest.json"), encoding="utf-8") as file:
        return json.load(file)


def a_snapshot_names_them():
    """The object of `twice` has two mappings, and that of `hidden`, between two steps, none."""
    found = manifest_of("objects")
    equal(found["version"], 2, "the version with objects")
    regions = {region["address"] for region in found["regions"]}
    check(all(o["address"] in regions for o in found["objects"]), "an object is no region")
    counts = {len(o["mappings"]) for o in found["objects"]}
    equal(counts, {0, 1, 2}, "how many mappings the objects have")
    found = manifest_of("counter")
    equal((found["version"], "objects" in found), (1, False), "the version without them")


main(*shared("objects.py", STEPS=120 if SANITIZED else 100, STEP_MS=3, STILL=0.04, CHUNK_MIB=4,
             LEAST=LEAST, HELD_MIB=128, PAUSES=5),
     threads_change_mappings_between_pauses, exported_objects_stay_with_the_driver,
     memory_of_a_gpu_without_a_context, memory_of_a_gpu_that_no_context_reaches, a_snapshot_names_them, released_handles_are_refused,
     none_of_it_is_counted_as_the_drivers)
