#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The memory limit of a job: what it sees, and what each way to take memory gets."""
import json
import os
import shutil
import subprocess
import tempfile

from simlib import MIB, SCRATCH, TSAN, kept_descriptors, shared, skipped, unsanitized
from snapshotjobs import ask, directory, told
from gpulib import BUILD, RUNTIME_DIR, Job, check, cudaw_ok, equal, faces, jobs, main
from daemons import listed, start_daemon
from harness import Skip, contains

LIMIT = {"CUDAW_MEM": "64M"}
FULL = "64 MiB, CUDA_ERROR_OUT_OF_MEMORY"
NOT_FULL = "512 MiB, CUDA_SUCCESS"
TAKEN = "one more: CUDA_SUCCESS"
REFUSED = "one more: CUDA_ERROR_OUT_OF_MEMORY"


def memory(job, which=-1):
    """The figures that the program has printed."""
    return [line for line in job.lines if line.startswith("free ")][which]


def answer(job):
    """What one more piece gets."""
    job.make_steps(1)
    return [line for line in job.lines if line.startswith("one more: ")][-1]


def ways_end(env=None, unlimited=()):
    job = Job("quota", env={**LIMIT, **(env or {})})
    lines = dict(line.split(": ") for line in job.result().splitlines()[:-1])
    equal(len(lines), 10, "the number of ways")
    for call, answered in lines.items():
        equal(answered, NOT_FULL if call in unlimited else FULL, call)
    equal(memory(job), "free 64 of 64 MiB, device 64", "what the program sees at the end")


def every_way_to_take_memory_ends_there():
    ways_end()


def so_does_memory_that_is_left_to_the_driver():
    ways_end({"CUDAW_TO_DRIVER": "memory"})


def so_does_memory_with_translated_addresses():
    ways_end({"CUDAW_ADDRESSING": "translated"})


def host_memory_is_not_limited():
    ways_end({"CUDAW_MANAGED": "host"}, unlimited=["cuMemAllocManaged"])


def beside(*args, **env):
    """One more process of the job abcdef, as "cudaw run" starts them."""
    return Job("quota", *args, mode="path", env={**LIMIT, "CUDAW_JOB": "abcdef", **env})


def holder(pieces, start=beside):
    job = start("--hold", pieces, "--each-line", 1)
    job.wait_line(f"holds {8 * pieces} MiB")
    return job


def processes_of_a_job_have_it_together():
    first, second = holder(5), holder(3)
    equal(memory(second), "free 0 of 64 MiB, device 64", "what the second process sees")
    equal((answer(first), answer(second)), (REFUSED, REFUSED), "one more piece")
    rows = jobs()
    for job in (first, second):
        gpu = rows[job.pid]["gpu"][0]
        equal((gpu["limit"], gpu["limit_used"]), (64 * MIB, 64 * MIB), "what cudaw ps says")
    check("64.0 MiB of 64.0 MiB" in cudaw_ok("ps", "-o", "limit"), "the column LIMIT")
    first.discard()     # by SIGKILL
    equal(answer(second), TAKEN, "one more piece after the other's end")
    second.result()
    equal(memory(second), "free 40 of 64 MiB, device 64", "what it sees then")


def a_paused_process_keeps_its_part():
    first, second = holder(5), holder(3)
    first.pause()
    equal(answer(second), REFUSED, "one more piece")
    first.resume()
    first.result()
    equal(answer(second), TAKEN, "one more piece after the other's end")
    second.result()


def accounts():
    return [name for name in os.listdir(RUNTIME_DIR) if name.endswith(".memory")]


def an_image_has_nothing_of_the_account():
    """It counts again when the image is made. The last process removes the file."""
    first, second = holder(5), holder(1)
    path = directory()
    equal(accounts(), ["abcdef.memory"], "the accounts")
    equal(ask(first, f"snapshot pause image none {path}")[-1], "end ok", "the answer")
    equal([link for link in kept_descriptors(first.pid).values() if ".memory" in link], [], "what is open of it")
    equal(told(first, "limit"), f"{64 * MIB} {48 * MIB}", "what it says meanwhile")
    equal(ask(first, f"done {path}")[-1], "end ok", "the answer")
    first.wait_state("running")
    equal(memory(second), "free 16 of 64 MiB, device 64", "what the other sees afterwards")
    first.result()
    equal(accounts(), ["abcdef.memory"], "the accounts while a process is left")
    second.result()
    equal(accounts(), [], "the accounts afterwards")


def shared_memory_counts_once():
    """With the process that made it: two ranks share four objects of 2 MiB."""
    for how in (), ("--ipc", 1):
        job = Job("sharing", "--ranks", 2, "--objects", 2, "--mib", 2, "--steps", 1000000, "--step-ms", 5, *how,
                  env={**LIMIT, "CUDAW_JOB": "abcdef"}, mode="path")
        job.wait_steps(3)
        equal([row["gpu"][0]["limit_used"] for row in jobs().values()], [8 * MIB] * 2, "what the ranks have")
        job.finish()


def other_jobs_have_their_own():
    first, second = holder(8), holder(8, lambda *args: beside(*args, CUDAW_JOB="fedcba"))
    first.result()
    second.result()


def a_tree_of_processes_has_it_together(start=""):
    """As in a container, also if it has several jobs: the first process has a scheduler's variable in its environment."""
    fifo = os.path.join(tempfile.mkdtemp(dir=SCRATCH), "tree")
    os.mkfifo(fifo)
    program = os.path.join(BUILD, "tests", "programs", "quota")
    job = Job("/bin/sh", "-c", f"{start} {program} --hold 5 --each-line 1 < {fifo} & read line; "
              f"CUDAW_JOB=fedcba {program} < /dev/null", mode="path", env={"CUDA_DEVICE_MEMORY_LIMIT": "1g", "CUDA_DEVICE_MEMORY_LIMIT_0": "65536k"})
    with open(fifo, "w", encoding="ascii"):
        job.wait_line("holds 40 MiB")
        job.tell()
        job.wait_line("cuMemAlloc: 24 MiB, CUDA_ERROR_OUT_OF_MEMORY")
    # By hand: another tree.
    other = Job("quota", mode="path", env={"CUDA_DEVICE_MEMORY_LIMIT": "64m"})
    other.wait_line(f"cuMemAlloc: {FULL}")
    other.result()
    job.result()


def so_it_has_in_several_time_namespaces():
    """As CRIU makes one for a process that it restores."""
    start = "unshare --time --boottime 1000"
    if subprocess.run([*start.split(), "true"], check=False).returncode:
        raise Skip("no time namespace can be made")
    a_tree_of_processes_has_it_together(start)


def nvml_directory():
    """Of the NVML of the simulated GPUs."""
    path = os.path.join(SCRATCH, "nvml")
    os.makedirs(path, exist_ok=True)
    shutil.copy(f"{BUILD}/tests/preload/nvml.so", f"{path}/libnvidia-ml.so.1")
    return path


def by_nvml(job):
    job.make_steps(1)
    return job.lines[-4:-1]


def nvml_shows_it_to_programs_that_find_the_face(mode="path"):
    """And only to them: the process knows how much it has itself."""
    paths = [os.path.join(faces(), "limited"), faces()] if mode == "path" else []
    env = {**LIMIT, "CUDAW_JOB": "abcdef", "CUDAW_RELEASE": "memory", "TEST_NVML_FILE": os.environ["CUDAW_SIM_SHARED"],
           "LD_LIBRARY_PATH": ":".join(paths + [nvml_directory()])}
    if mode == "run":
        del env["CUDAW_JOB"]
    else:
        del env["CUDAW_MEM"]    # it sets it itself
    job = Job("nvml", "--mib", 40, "--limit", 64, "--each-line", 1, mode=mode, env=env)
    said = by_nvml(job)
    equal(said[:2], ["nvml: 40 of 64 MiB used, 24 free", "v2: 40 of 64 MiB used, 24 free, 0 reserved"], "NVML")
    check(int(said[2].split()[1]) > 40, f"the context is not in {said[2]!r}")
    check(job.status()["left_to_driver"] > 40 * MIB, "cudaw does not see the real figures")
    job.pause()
    job.resume()
    if mode == "path":
        other = holder(3)
        equal(by_nvml(job)[0], "nvml: 64 of 64 MiB used, 0 free", "NVML beside another process of the job")
        other.result()
    contains(job.result(), "a function that the library lacks: refused")


@unsanitized
def nvml_shows_it_under_cudaw_run():
    nvml_shows_it_to_programs_that_find_the_face("run")


def cudawd_sees_the_whole_gpu():
    """As one that "cudaw run --turns" starts inside of a job with a limit."""
    env = {"TEST_NVML_FILE": os.environ["CUDAW_SIM_SHARED"], **LIMIT,
           "LD_LIBRARY_PATH": f"{os.path.join(faces(), 'limited')}:{nvml_directory()}"}
    start_daemon(env=env)
    job = Job("counter", "--steps", 100000, "--step-ms", 10, env={"CUDAW_TURNS": "user"})
    job.until(listed, 30, "it takes turns")
    equal(json.loads(cudaw_ok("turns", "--json"))["gpus"][0]["total"], 4096 * MIB, "the GPU's memory")
    job.finish()


def nvml_is_as_ever_without_a_limit():
    job = Job("nvml", "--each-line", 1, mode="run", env={
        "TEST_NVML_FILE": os.environ["CUDAW_SIM_SHARED"], "LD_LIBRARY_PATH": f"{faces()}:{nvml_directory()}"})
    contains(by_nvml(job)[0], " of 4096 MiB used")
    contains(job.result(), "a function that the library lacks: missing")


if TSAN:
    nvml_shows_it_to_programs_that_find_the_face = skipped(
        nvml_shows_it_to_programs_that_find_the_face,
        "TSan reports the descriptor that threads share in the NVML of the tests")

main(every_way_to_take_memory_ends_there, so_does_memory_that_is_left_to_the_driver,
     so_does_memory_with_translated_addresses, host_memory_is_not_limited,
     processes_of_a_job_have_it_together, an_image_has_nothing_of_the_account, a_paused_process_keeps_its_part, shared_memory_counts_once,
     other_jobs_have_their_own, a_tree_of_processes_has_it_together, so_it_has_in_several_time_namespaces,
     nvml_shows_it_to_programs_that_find_the_face,
     nvml_shows_it_under_cudaw_run, cudawd_sees_the_whole_gpu, nvml_is_as_ever_without_a_limit,
     *shared("quota.py", leave_out=("every_way_to_take_memory_ends_there", "pytorch_obeys_it", "cupy_obeys_it",
                                    "jax_obeys_it", "nvidia_smi_shows_it")))
