#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Managed memory that cannot move to the host stays on the GPU, and the pause says so."""
import simlib  # noqa: F401 (the simulated driver)
from gpulib import Job, check, equal, main

MIB = 64


def refused_by_the_driver():
    job = Job("counter", "--mib", MIB, "--managed", 1, "--steps", 1000000, "--step-ms", 5,
              env={"CUDAW_RELEASE": "memory", "CUDAW_SIM_FAULT": "cuMemPrefetchAsync_v2:1:999"})
    job.wait_steps(3)
    job.pause()
    check("0.06 GiB of managed memory may stay on the GPU: CUDA_ERROR_UNKNOWN" in job.said,
          f"cudaw pause says {job.said!r}")
    job.resume()
    job.wait_steps(job.steps() + 3)
    job.pause()
    equal(job.said.count("managed memory"), 1, "how many of the two pauses say it")
    job.resume()
    check("every word right" in job.finish(), "the job did not verify its memory")


main(refused_by_the_driver)
