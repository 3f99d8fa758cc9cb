#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The soak of tests/gpu on the simulated driver: SOAK_CYCLES cycles of each kind, 12 without that."""
import os

from simlib import SANITIZED, shared
from gpulib import main

CYCLES = int(os.environ.get("SOAK_CYCLES", "12"))

main(*shared("soak.py", CYCLES, CYCLES,
             SANITIZED=bool(SANITIZED)))
