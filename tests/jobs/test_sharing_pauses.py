#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The GPU test of memory that processes share, on the simulated driver."""
from simlib import shared
from gpulib import main

main(*shared("sharing.py", STEPS=60, STEP_MS=3, STILL=0.04, MIB=2, OBJECTS=2, BALLAST=64, PAUSES=3))
