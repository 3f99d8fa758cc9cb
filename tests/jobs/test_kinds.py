#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The GPU test of the kinds of memory, on the simulated driver."""
from simlib import not_by_tsan, shared
from gpulib import main

main(*[(name, not_by_tsan(case) if name.endswith(", all") else case)
       for name, case in shared("kinds.py", STEPS=60, STEP_MS=3, STILL=0.04)])
