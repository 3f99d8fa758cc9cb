# SPDX-License-Identifier: Apache-2.0
"""A little of the CUDA driver's interface: the examples need no package, and run on the simulated driver, too."""
import ctypes

driver = ctypes.CDLL("libcuda.so.1")


def call(name, *args):
    error = getattr(driver, name)(*args)
    if error:
        raise RuntimeError(f"{name}: CUDA error {error}")


class Memory:
    """Bytes on GPU 0, for the thread that makes them."""

    def __init__(self, size):
        context, self.at, self.size = ctypes.c_void_p(), ctypes.c_uint64(), size
        call("cuInit", 0)
        call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        call("cuCtxSetCurrent", context)
        call("cuMemAlloc_v2", ctypes.byref(self.at), ctypes.c_size_t(size))

    def fill(self, byte):
        call("cuMemsetD8_v2", self.at, ctypes.c_ubyte(byte), ctypes.c_size_t(self.size))

    def read(self, size):
        data = ctypes.create_string_buffer(size)
        call("cuMemcpyDtoH_v2", data, self.at, ctypes.c_size_t(size))
        return data.raw


def synchronize():
    call("cuCtxSynchronize")
