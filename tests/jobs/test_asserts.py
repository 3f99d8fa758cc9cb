#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The GPU test of contexts in error, on the simulated driver."""
from simlib import shared
from gpulib import main

main(*shared("asserts.py", sanitizers_leave_out=["beside_another_process"]))
