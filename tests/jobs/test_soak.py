#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The soak of tests/gpu on the simulated driver: SOAK_CYCLES cycles of each kind, 8 without that; and
many more steps of stream-ordered memory, in streams of all kinds that come and go.
"""
import os

from simlib import SANITIZED, shared
from gpulib import Job, check, main

CYCLES = int(os.environ.get("SOAK_CYCLES", "8"))


def stream_ordered_memory():
    for ends in (1, 2):     # see ordered.c
        said = Job("ordered", "--steps", 10 * CYCLES, "--step-ms", 1, "--streams-end", ends, "--pools-end", ends,
                   "--green", 1).result()
        check("every word right" in said, f"it says {said!r}")


main(*shared("soak.py", CYCLES, CYCLES,
             SANITIZED=bool(SANITIZED)),
     stream_ordered_memory)
