#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
The kernel of a notebook: each line of stdin is a cell. An interrupt (SIGINT) ends the cell, not the kernel.

    cudaw run --turns --class interactive -- python notebook_kernel.py

While the job is paused, or waits for its turn, a cell waits in its next CUDA call. Python raises KeyboardInterrupt
when that call returns: an interrupted cell ends as soon as the job has its memory again, and the variables are there.
"""
import sys

import gpu

variables = {"gpu": gpu}
print("ready", flush=True)
for cell in sys.stdin:
    try:
        exec(cell, variables)
        print("done", flush=True)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    except Exception as error:  # pylint: disable=broad-except
        print("error:", error, flush=True)
