#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A process has one core of cudaw, however it opens the driver."""
import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from harness import BUILD, CUDAW, PATIENCE, equal, faces, main  # noqa: E402
import simlib  # noqa: E402, F401 pylint: disable=unused-import
from gpulib import SCRATCH, base_environment  # noqa: E402

OPENING = os.path.join(BUILD, "tests", "guests", "programs", "opening")
OPENER = os.path.join(BUILD, "tests", "guests", "libs", "opener.so")
OURS = "a driver, 1 control threads\n"


def run(*command, cudaw=True, **env):
    """What a command prints."""
    environment = {**base_environment(), "TEST_LIBRARY": OPENER, **env}
    environment = {name: value for name, value in environment.items() if value is not None}
    done = subprocess.run([CUDAW, "run", *command] if cudaw else command, env=environment, text=True,
                          capture_output=True, timeout=15 * PATIENCE, check=False)
    return done.stdout + done.stderr


def opening(*words, **options):
    return run(OPENING, *words, **options)


def a_namespace_has_no_core_of_its_own():
    """Two of them, and the program itself: one control thread."""
    equal(opening("namespace", "libcuda.so.1", "libcuda.so.1", LD_LIBRARY_PATH=faces()), 2 * OURS)


def a_second_face_has_no_core_of_its_own():
    """One of another installation, with "cudaw run" and with LD_LIBRARY_PATH alone."""
    copy = shutil.copy(f"{faces()}/libcuda.so.1", f"{SCRATCH}/copy")
    for under in (True, False):
        equal(opening("now", "libcuda.so.1", copy, cudaw=under, LD_LIBRARY_PATH=faces()), 2 * OURS)


main(a_namespace_has_no_core_of_its_own, a_second_face_has_no_core_of_its_own)
