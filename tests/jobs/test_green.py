#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The GPU test of green contexts, on the simulated driver."""
from simlib import shared
from gpulib import main

main(*shared("green.py"))
