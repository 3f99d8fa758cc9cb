#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The soak of turns of tests/gpu on the simulated driver: TURNS_SOAK="HANDOVERS KILLS DAEMONS", few without
that."""
import os
import re

from simlib import MIB, SANITIZED, shared
from gpulib import main
import turnslib

NUMBERS = os.environ.get("TURNS_SOAK") or ("8 3 1" if SANITIZED else "20 8 2")
OPTIONS = ("--quantum", "0.3", "--idle", "0.3", "--margin", "32M")
# A context waits for as much as one takes on a real GPU, which this one never has: it seldom finds no room. Streams do
# not wait (docs/turns.md).
ENV = {**turnslib.ENV, "CUDAW_SIM_MEMORY": str(288 * MIB), "CUDAW_SIM_CONTEXT": str(4 * MIB)}

main(*shared("turns_soak.py", *NUMBERS.split(), ENV=ENV, UNIT=1, GPU_SLACK=0,
             MAY_FAIL=re.compile("(cuDevicePrimaryCtxRetain|cuStreamCreate).*: error 2"),
             STUCK_S=180 if SANITIZED else 60,
             before_all=lambda: None, start_daemon=lambda: turnslib.start_daemon(*OPTIONS)))
