#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The first calls after a pause, on the simulated driver, which counts those that wait in it."""
import os

from simlib import SCRATCH, shared
from gpulib import equal, main

COUNTS = os.path.join(SCRATCH, "counts")


def none_waits_in_the_driver():
    with open(COUNTS, encoding="ascii") as file:
        blocked = [line.strip() for line in file if line.startswith("blocked:")]
    equal(blocked, [], "the calls that waited inside the driver during its checkpoint")


os.environ["CUDAW_SIM_COUNT"] = COUNTS     # of the last job
main(*shared("first_calls.py"),
     none_waits_in_the_driver)
