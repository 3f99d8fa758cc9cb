#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Frameworks that take turns, each with another copy of itself, print what they print natively."""
import os

from daemons import taking_turns
from gpulib import main

TURNS = 20
os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"] = ".025"   # or JAX takes all that is free, and cuBLAS finds nothing

main(taking_turns(TURNS, 9 * 1024, "train.py", "--modes", "graph", "--width", 1024, "--layers", 20, "--steps", 600),
     taking_turns(TURNS, 5 * 1024, "cupy_run.py", "--hold-mib", 2048, "--steps", 2000, "--step-ms", 5),
     taking_turns(TURNS, 6 * 1024, "jax_run.py", "--hold-mib", 2560, "--steps", 2000, "--step-ms", 5))
