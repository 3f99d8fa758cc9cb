#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""UCX patches the driver's functions that allocate and free: it finds ours as good, before a pause and after it."""
from simlib import paused_and_resumed, unsanitized
from gpulib import Job, check, main


def hears_of_all_memory(far):
    def case():
        job = Job("ucx.py", "--steps", 30, "--step-ms", 10, env={"UCX_MEM_BISTRO_FORCE_FAR_JUMP": far})
        job.wait_steps(3)
        paused_and_resumed(job)
        check("ucx: heard of everything" in job.result(), "UCX did not hear of everything")
    return f"hears_of_all_memory_by_{'far' if far == 'y' else 'near'}_jumps", unsanitized(case)


main(*map(hears_of_all_memory, "ny"))
