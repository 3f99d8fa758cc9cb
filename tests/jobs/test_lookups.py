#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the machine's driver lacks is not found in ours either, by dlsym(), dlvsym() and cuGetProcAddress."""
import os

from simlib import REPOSITORY, SIM_DIR, unsanitized
from gpulib import Job, check, equal, main

OLD = os.path.join(SIM_DIR, "old", "libcuda.so.1")
NEWER = "cuCheckpointProcessLock"


def exports():
    with open(os.path.join(REPOSITORY, "wrapper", "face", "exports", "libcuda.txt"), encoding="ascii") as lines:
        return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def looked_up(mode, *args, **env):
    return Job("lookups", *args, mode=mode, env=env).result().splitlines()


def as_in_the_driver(mode):
    def case():
        names = ["libcuda.so.1", *exports()]
        native = looked_up("native", *names, LD_LIBRARY_PATH=os.path.dirname(OLD))
        check(f"{NEWER}: dlsym missing, dlvsym missing" in native, "the old driver has a newer function")
        equal(looked_up(mode, *names, CUDAW_REAL_LIBCUDA=OLD), native, "how functions are found")
    return f"as_in_the_driver_{mode}", case


def in_a_driver_that_the_program_opens_by_a_path():
    """Until the first call nobody knows which driver it will be."""
    new = os.path.join(SIM_DIR, "libcuda.so.1")
    lines = looked_up("run", new, NEWER, CUDAW_REAL_LIBCUDA="", LD_LIBRARY_PATH=os.path.dirname(OLD))
    equal(lines, [f"{NEWER}: dlsym missing, dlvsym missing", f"{NEWER}: cuGetProcAddress 0 there, dlsym there"],
          "how it is found")


main(as_in_the_driver("run"), as_in_the_driver("path"), unsanitized(in_a_driver_that_the_program_opens_by_a_path))
