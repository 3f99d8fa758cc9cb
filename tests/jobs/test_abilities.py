#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A program sees multicast objects and fabric handles only if the user asked for them."""
import subprocess
import sys

from simlib import unsanitized
from gpulib import CUDAW, base_environment, equal, main

MULTICAST, FABRIC, COOPERATIVE_LAUNCH = 132, 128, 95  # CU_DEVICE_ATTRIBUTE_*

ASK = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
value = ctypes.c_int(7)
assert not cuda.cuInit(0)
for attribute in map(int, sys.argv[1:]):
    assert not cuda.cuDeviceGetAttribute(ctypes.byref(value), attribute, 0)
    print(value.value)
"""


def seen(*words, **settings):
    done = subprocess.run([*words, sys.executable, "-c", ASK, str(MULTICAST), str(FABRIC),
                           str(COOPERATIVE_LAUNCH)], check=True, capture_output=True, text=True,
                          env={**base_environment(), **settings})
    return done.stdout.split()


def hidden_from_a_program():
    equal(seen(CUDAW, "run", "--"), ["0", "0", "1"], "multicast, fabric, cooperative launch")


def shown_if_the_user_asks():
    equal(seen(CUDAW, "run", "--", CUDAW_TO_DRIVER="multicast"), ["1", "0", "1"], "multicast shown")
    equal(seen(CUDAW, "run", "--", CUDAW_TO_DRIVER="fabric"), ["0", "1", "1"], "fabric shown")
    equal(seen(CUDAW, "run", "--", CUDAW_TO_DRIVER="exports,fabric,multicast"), ["1", "1", "1"], "both shown")


main(unsanitized(hidden_from_a_program), unsanitized(shown_if_the_user_asks))
