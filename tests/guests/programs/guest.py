# SPDX-License-Identifier: Apache-2.0
"""What the guests in Python share: memory on the GPU, by ctypes, and the point to be paused at."""
import ctypes
import os
import sys

SIZE = 1 << 20


def say(*words):
    print(*words, flush=True)


def point():
    """Here a run under cudaw is paused and resumed; others go on at the end of stdin."""
    say("point")
    os.read(0, 1)


class Memory:
    """A buffer on the GPU."""

    def __init__(self, value):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.value = value
        self.data = ctypes.c_uint64()
        context = ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.call("cuCtxSetCurrent", context)
        self.call("cuMemAlloc_v2", ctypes.byref(self.data), ctypes.c_size_t(SIZE))
        self.call("cuMemsetD8_v2", self.data, ctypes.c_ubyte(value), ctypes.c_size_t(SIZE))

    def call(self, name, *args):
        result = getattr(self.cuda, name)(*args)
        if result:
            sys.exit(f"{name}: CUDA error {result}")

    def check(self):
        host = ctypes.create_string_buffer(SIZE)
        self.call("cuMemcpyDtoH_v2", host, self.data, ctypes.c_size_t(SIZE))
        say("memory right" if host.raw == bytes([self.value]) * SIZE else "memory wrong")
