#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Few of many small allocations are left, on the simulated driver, whose blocks are the real one's."""
import simlib  # noqa: F401 (the simulated driver)
from frag import compare
from gpulib import main

main(compare("frag_few"), compare("frag_few_line", 2))
