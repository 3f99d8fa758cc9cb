#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The GPU test of memory that processes share, on the simulated driver; and what happens when one of
them fails, ends or is stopped in the middle of a pause or a resume.
"""
from simlib import SANITIZED, shared
from gpulib import main

main(*shared("sharing.py", STEPS=60, STEP_MS=3, STILL=0.04, MIB=2, OBJECTS=4, PAUSES=3))
