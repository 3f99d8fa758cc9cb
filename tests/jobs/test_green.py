#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The GPU test of green contexts, on the simulated driver."""
from simlib import not_by_tsan, shared
from gpulib import main

main(*[(name, not_by_tsan(case) if "stays" not in name else case) for name, case in shared("green.py")])
