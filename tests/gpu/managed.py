#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""managed.py: managed memory with CUDAW_MANAGED=host. The driver's answers are the native ones, but
for the differences that are known (a row of KNOWN goes when its difference is gone); a job is paused
in both ways of release; and what the GPU reads and writes in a second, beside the native figures.
"""
from gpulib import (CUDAW, Job, Skip, answers, base_environment, check, figure, gpu_count, gpu_used,
                    idle_gpu_used, main, pause_at_random, same_answers, same_lines)

CASES = {"alloc": 1, "attributes": 1, "use": 1, "hints": 1, "batches": 1, "free_async": 1,
         "attach_0": 1, "attach_0_null": 1, "streams": 1,
         "captured": 1, "fault": 1, "kept": 1, "contexts": 1, "two_gpus": 2}
RUNTIME = "by the runtime"
HOST = {"CUDAW_MANAGED": "host"}
STEPS, STEP_MS, STILL, PAUSES = 150, 10, 0.2, 5
MIB, RATE_MIB = 1024, 4096
CONTEXT = 1 << 30       # more than a context takes on any GPU

# By case, the questions that are answered otherwise [H200, 580.159]. With flags 0, which are not valid,
# cuStreamAttachMemAsync() ends the program natively.
KNOWN = {
    "attributes": {"cuMemHostGetDevicePointer"},
    "hints": {"on node 0"},
    "batches": {"the second"},
    "attach_0": {"attaching with flags 0", "how the program ended"},
    "attach_0_null": {"attaching to the NULL stream with flags 0", "how the program ended"},
}


def compare(case):
    def run():
        if gpu_count() < CASES.get(case, 1):
            raise Skip(f"{CASES[case]} GPUs needed, {gpu_count()} here")
        program = ("managed_rt",) if case == RUNTIME else ("managed", case)
        same_answers(answers(*program), answers(*program, under=(CUDAW, "run", "--"),
                                                env={**base_environment(), **HOST}), KNOWN.get(case, ()))
    return f"the driver's answers, {case}", run


def paused(release):
    """Nothing of it is on the GPU meanwhile."""
    def case():
        idle = idle_gpu_used()
        args = "managed_run", "--mib", MIB, "--steps", STEPS, "--step-ms", STEP_MS
        undisturbed = Job(*args, mode="native").result()
        job = Job(*args, env={**HOST, "CUDAW_RELEASE": release})
        job.wait_steps(2)
        check(job.status()["left_to_driver"] < CONTEXT, "the managed memory is left to the driver")
        rows = pause_at_random(job, PAUSES, STEPS, STILL)
        check(all(rows), "the job ended before its last resume was done")
        job.pause()
        used = gpu_used() - idle
        check(used == 0 if release == "all" else used < CONTEXT >> 20,
              f"{used} MiB are in use while the job is paused")
        job.resume()
        same_lines(job.result(), undisturbed, f"after {PAUSES + 1} pauses")
    return f"paused, {release}", case


def a_managed_variable():
    """It is the driver's, whose checkpoint refuses it: the context stays on the GPU."""
    args = "memory_kinds", "--kind", "managed_var", "--steps", STEPS, "--step-ms", STEP_MS
    undisturbed = Job(*args, mode="native").result()
    job = Job(*args, env=HOST)
    rows = pause_at_random(job, 2, STEPS, STILL)
    check(all(rows), "the job ended before its last resume was done")
    print(f"# cudaw pause said: {job.said}")
    check("__managed__ variables" in job.said, "the pause does not name the reason")
    same_lines(job.result(), undisturbed, "after 2 pauses")


def rates():
    for name, env in (("native", {}), ("host", HOST)):
        job = Job("managed_run", "--mib", RATE_MIB, "--rate", 10, env=env,
                  mode="native" if name == "native" else "run")
        for line in job.result().splitlines():
            what, value, unit = line.split()
            figure(f"{name}_{what}", float(value), unit)


main(*[compare(case) for case in (*CASES, RUNTIME)], *[paused(release) for release in ("all", "memory")],
     a_managed_variable, ("what the GPU reads and writes in a second", rates))
