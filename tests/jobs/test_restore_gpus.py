#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
cudaw restore onto other GPUs. The simulated driver moves a process only by pairs that have all GPUs
of the machine, also those that the process does not see, as the real one does.
"""
import json
import os
import subprocess
from unittest.mock import patch

from restorelib import (Counting, allow_stand_in, directory, goes_on, need_criu,
                        nvml, refused, stands_in)
from gpulib import (CUDAW, Skip, base_environment, check, cudaw_ok,
                    equal, jobs, main)
import snapshotlib

GPUS = [f"GPU-63756461-772d-7369-6d75-6c61746564{number:02x}" for number in range(4)]


def on_gpus(count, visible=None):
    """A job on a machine of so many GPUs, which this is from now on."""
    os.environ["CUDAW_SIM_DEVICES"] = str(count)
    if visible is None:
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)
        return Counting()
    os.environ["CUDA_VISIBLE_DEVICES"] = visible
    try:
        return Counting()
    finally:
        os.environ.pop("CUDA_VISIBLE_DEVICES")


def stop(job):
    path = directory()
    cudaw_ok("snapshot", "--stop", job.pid, path)
    check(job.is_gone(), "the job is still there")
    return path


def saw(path):
    """The GPUs that the process of a snapshot saw."""
    devices = json.loads(cudaw_ok("inspect", "--json", path))["devices"]
    return [GPUS.index(device["uuid"]) for device in devices]


def restored_to(job, path, gpu, *options):
    """It goes on, and on that GPU."""
    steps = job.steps()
    cudaw_ok("restore", *options, path)
    row = jobs()[job.pid]
    equal([(g["ordinal"], g["uuid"]) for g in row["gpu"]], [(0, GPUS[gpu])], "the GPU in cudaw ps")
    job.wait_steps(steps + 3)
    # It can be paused where it is, and its manifest has the new GPUs: the next pairs are right.
    cudaw_ok("pause", job.pid)
    cudaw_ok("resume", job.pid)
    job.wait_steps(job.steps() + 3)


def to_the_other_gpu_and_back():
    need_criu()
    job = on_gpus(2)
    path = stop(job)
    equal(saw(path), [0, 1], "the GPUs at first")
    said = refused("restore", "--gpu", "1", path, code=2)
    check("--gpu 1: expected OLD=NEW, as the job has 2 GPUs" in said, said)
    restored_to(job, path, 1, "--gpu", "0=1")
    path = stop(job)
    equal(saw(path), [1, 0], "the GPUs of the moved job")
    restored_to(job, path, 0, "--gpu", "0=0")
    path = stop(job)
    equal(saw(path), [0, 1], "the GPUs of the job that is back")
    restored_to(job, path, 0)
    job.finish()


def by_uuid():
    need_criu()
    job = on_gpus(3)
    restored_to(job, stop(job), 2, "--gpu", f"{GPUS[0]}={GPUS[2]}", "-g", f"{GPUS[1]}=0")
    path = stop(job)
    equal(saw(path), [2, 0, 1], "the GPUs")
    restored_to(job, path, 1, "--gpu", f"{GPUS[2]}={GPUS[1]}")
    job.finish()


def a_moved_job_stays_where_it_is():
    """Without --gpu, and from an older snapshot where that says."""
    need_criu()
    job = on_gpus(2)
    first = stop(job)
    with open(job.log, encoding="utf-8") as file:
        log = file.read()
    restored_to(job, first, 1, "--gpu", "0=1")
    restored_to(job, stop(job), 1)
    stop(job)
    with open(job.log, "w", encoding="utf-8") as file:
        file.write(log)
    restored_to(job, first, 0)
    job.finish()


def a_job_that_sees_one_gpu_of_several():
    need_criu()
    with patch.dict(os.environ, nvml(COUNT=4)):
        job = on_gpus(4, visible="2")
        path = stop(job)
        equal(saw(path), [2], "the GPU at first")
        restored_to(job, path, 3, "--gpu", "3")
        path = stop(job)
        equal(saw(path), [3], "the GPU of the moved job")
        restored_to(job, path, 3)
        job.finish()


def another_machine():
    """The GPU of the snapshot is not there: it takes the first one of the same kind."""
    need_criu()
    with patch.dict(os.environ, nvml(COUNT=2)):
        job = on_gpus(2, visible="1")
        path = stop(job)
        with patch.dict(os.environ, CUDA_VISIBLE_DEVICES="0"):
            restored_to(job, path, 0)
        job.finish()


def a_machine_of_fewer_gpus():
    """The driver counts those that the job did not see, too. Nothing is started where there are
    fewer; where nobody counted them, then or now, it is tried."""
    with patch.dict(os.environ, nvml(COUNT=2)):
        job = on_gpus(2, visible="0")
        path = stop(job)
    equal(json.loads(cudaw_ok("inspect", "--json", path))["gpus"], 2, "the GPUs of the machine")
    check("needs     a machine of 2 GPUs, " in cudaw_ok("inspect", path), "inspect does not say so")
    os.environ["CUDAW_SIM_DEVICES"] = "1"
    said = refused("restore", path, code=6, env=nvml(COUNT=1))
    check("expected a machine with 2 GPUs, found 1; " in said, said)
    check(job.is_gone(), "a process was started")
    if stands_in():
        os.environ["CUDAW_SIM_DEVICES"] = "2"
        goes_on(job, path)
        return
    for env in nvml(COUNT=2), nvml(COUNT=3), {}:
        with patch.dict(os.environ, env):
            restored_to(job, path, 0)
        path = stop(job)
    snapshotlib.edit_manifest(path, lambda m: m.pop("gpus"))
    with patch.dict(os.environ, nvml(COUNT=1)):
        restored_to(job, path, 0)
    job.finish()


def too_little_memory():
    """A job that takes turns waits for it."""
    with patch.dict(os.environ, CUDAW_TURNS="user"):
        job = on_gpus(1)
    path = stop(job)
    with open(f"{path}/manifest.json", encoding="utf-8") as file:
        manifest = json.load(file)
    # NVML does not know what the process holds, but nobody else holds any: a context, and a block of small memory.
    equal(manifest["devices"][0]["held"], 66 << 20, "what the context takes")
    needed = manifest["totals"]["bytes"] + (66 << 20)
    env = nvml(FREE=needed - 1)
    with patch.dict(os.environ, env):
        check("can be restored here" in cudaw_ok("restore", "--check", path), "a job with turns is refused")
    snapshotlib.edit_manifest(path, lambda m: m["process"].update(turns=False))
    said = refused("restore", path, env=env)
    check(f"expected 100 MiB free on GPU 0 ({GPUS[0]}), 66.0 MiB of it for contexts, found" in said,
          said)
    check(job.is_gone(), "a process was started")
    with patch.dict(os.environ, {**env, "TEST_NVML_FREE": str(needed)}):
        goes_on(job, path)


def another_driver():
    """What is in /sys comes from a file system of its own."""
    script = ("mount -t tmpfs none /sys/module && mkdir /sys/module/nvidia && "
              "echo 570.2 > /sys/module/nvidia/version && exec \"$@\"")
    there = ["unshare", "-m", "sh", "-c", script, "sh"]
    tried = subprocess.run([*there, "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        raise Skip(f"nothing can be mounted: {tried.stderr.strip()}")
    job = on_gpus(1)
    path = stop(job)
    snapshotlib.edit_manifest(path, lambda m: m.update(driver="580.1"))
    done = subprocess.run([*there, CUDAW, "restore", path], env=base_environment(),
                          capture_output=True, text=True, check=False)
    equal(done.returncode, 6, "the exit code")
    check("expected driver 580.1, found 570.2" in done.stderr, done.stderr)
    check(job.is_gone(), "a process was started")


if __name__ == "__main__":
    allow_stand_in()
    main(to_the_other_gpu_and_back, by_uuid, a_moved_job_stays_where_it_is,
         a_job_that_sees_one_gpu_of_several, another_machine, a_machine_of_fewer_gpus,
         too_little_memory, another_driver)
