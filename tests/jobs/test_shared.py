#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The GPU tests that need no GPU: the same cases on the simulated driver, on less memory."""
from simlib import shared
from gpulib import main

MIB = 128

main(*shared("same.py", "counter", "--steps", 60, "--step-ms", 10),
     *shared("pauses.py", 6, "counter", "--steps", 200, "--step-ms", 5),
     *shared("processes.py", sanitizers_leave_out=("a_shell_that_becomes_a_job",
                                                   "a_process_without_cuda_is_left_alone"),
             tsan_leaves_out=("a_job_that_forks",)),
     *shared("drain.py"),
     *shared("released.py", MIB=MIB),
     *shared("contention.py", MIB=MIB, ENV={"CUDAW_SIM_PAGE_TABLES": "1"}),
     *shared("command.py", MIB=16, sanitizers_leave_out=("the_status_of_the_program",)))
