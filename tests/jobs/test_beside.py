#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A process that has loaded a library which works with the GPU beside the CUDA driver keeps its context,
whose memory that library refers to (common/processes/beside.h).
"""
import os
import shutil
import tempfile

from simlib import BUILD, LEFT_MIB, SCRATCH, gpu_used, unsanitized
from snapshotjobs import ask
from gpulib import Job, check, cudaw, cudaw_ok, equal, main

LIBRARY = os.path.join(SCRATCH, "libnvcuvid.so.1")
shutil.copy(os.path.join(BUILD, "tests", "preload", "peercred.so"), LIBRARY)     # any library does


def loaded(mode="run", **env):
    job = Job("counter", "--mib", 16, "--steps", 1000000, "--step-ms", 10, mode=mode,
              env={"LD_PRELOAD": LIBRARY, **env})
    job.wait_steps(3)
    return job


def goes_on(job):
    job.wait_steps(job.steps() + 3)
    check("every word right" in job.finish(), "the job did not verify its memory")


@unsanitized
def the_context_stays_and_the_pause_says_so():
    job = loaded()
    said = cudaw_ok("pause", "--release", "all", job.pid)
    check("the context stays on the GPU: libnvcuvid.so.1" in said, f"it says {said!r}")
    check("work of this library" in said and "__managed__" not in said, f"it says {said!r}")
    equal(gpu_used(), LEFT_MIB, "MiB in use: those of the context")
    job.resume()
    goes_on(job)


@unsanitized
def a_request_for_the_rest_is_refused_by_name():
    job = loaded()
    cudaw_ok("pause", "--release", "memory", job.pid)
    done = cudaw("pause", "--release", "all", job.pid)
    equal(done.returncode, 6, f"the exit code ({done.stderr.strip()})")
    check("libnvcuvid.so.1" in done.stderr, f"it says {done.stderr!r}")
    job.resume()
    goes_on(job)


@unsanitized
def a_snapshot_with_a_process_image_is_refused_by_name():
    job, path = loaded(), tempfile.mkdtemp(dir=SCRATCH)
    said = ask(job, f"snapshot pause image {path}")[-1]
    check(said.startswith("end unsupported") and "libnvcuvid.so.1" in said, f"it says {said!r}")
    job.wait_state("running")
    goes_on(job)


@unsanitized
def a_native_process_is_not_paused_by_the_driver():
    os.environ["CUDAW_SIM_REMOTE"] = tempfile.mkdtemp(dir=SCRATCH)
    job = loaded(mode="native")
    done = cudaw("pause", "--driver", job.pid)
    equal(done.returncode, 6, f"the exit code ({done.stderr.strip()})")
    check("libnvcuvid.so.1" in done.stderr and "; it runs on" in done.stderr,
          f"it says {done.stderr!r}")
    done = cudaw("pause", "--driver", "--dry-run", job.pid)
    equal(done.returncode, 6, f"the exit code of a dry run ({done.stderr.strip()})")
    goes_on(job)


@unsanitized
def a_native_process_that_is_paused_already():
    os.environ["CUDAW_SIM_REMOTE"] = tempfile.mkdtemp(dir=SCRATCH)
    # A checkpoint from outside may find the program waiting in the driver, as it is meant to.
    job = loaded(mode="native", CUDAW_SIM_STRICT="0")
    Job("drvckpt", "--pid", job.pid, "--until", 2, mode="native").result()
    said = cudaw_ok("pause", "--driver", job.pid)
    check("already paused" in said, f"it says {said!r}")
    done = cudaw("pause", "--driver", "--dry-run", job.pid)
    check("it runs on" not in done.stderr, f"a dry run says {done.stderr!r}")
    cudaw_ok("resume", job.pid)
    goes_on(job)


main(the_context_stays_and_the_pause_says_so, a_request_for_the_rest_is_refused_by_name,
     a_snapshot_with_a_process_image_is_refused_by_name, a_native_process_is_not_paused_by_the_driver,
     a_native_process_that_is_paused_already)
