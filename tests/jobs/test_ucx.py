#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The GPU test of UCX, on the simulated driver."""
from simlib import knows_gpu, shared, unsanitized
from gpulib import main

main(*[(name, unsanitized(case)) for name, case in shared("ucx.py", ENV=knows_gpu())])
