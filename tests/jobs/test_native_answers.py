#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Calls that cudaw answers otherwise than by the driver: the program sees the same as natively."""
import simlib  # noqa: F401 (the simulated driver)
from gpulib import Job, main, same_lines


def answers_are_native(case):
    def run():
        native = Job("fidelity", case, mode="native").result()
        same_lines(Job("fidelity", case).result(), native, "under cudaw")
    return f"fidelity {case}", run


main(*[answers_are_native(case) for case in ("fault",)])
