#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
UCX hears of the driver's memory, as its memory-type and registration caches do: in each step, of what was allocated
and freed through the exported function, and through the one that cuGetProcAddress gives.

The package libucx-cu12 or libucx-cu13 has UCX.
"""
import argparse
import ctypes
import importlib.util
import os
import time

from ctypes_job import call

ALLOCATED, FREED = 1 << 20, 1 << 21     # UCM_EVENT_MEM_TYPE_* of ucm/api/ucm.h


def library(name):
    folder = importlib.util.find_spec("libucx").submodule_search_locations[0]
    return ctypes.CDLL(os.path.join(folder, "lib", name), ctypes.RTLD_GLOBAL)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--step-ms", type=float, default=0)
    args = parser.parse_args()
    context = ctypes.c_void_p()
    heard = []

    @ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.POINTER(ctypes.c_uint64), ctypes.c_void_p)
    def hear(event, memory, _):
        heard.append((event, memory[0]))

    _, events, _ = [library(name) for name in ("libucs.so.0", "libucm.so.0", "ucx/libucm_cuda.so.0")]
    cuda = ctypes.CDLL("libcuda.so.1")
    call(cuda.cuInit(0))
    call(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    call(cuda.cuCtxSetCurrent(context))
    call(events.ucm_set_event_handler(ALLOCATED | FREED, 0, hear, None))

    def asked(name):
        address = ctypes.c_void_p()
        call(cuda.cuGetProcAddress_v2(name, ctypes.byref(address), 12000, ctypes.c_uint64(0), None))
        return ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)(address.value)

    for k in range(args.steps):
        for allocate, free in ((cuda.cuMemAlloc_v2, cuda.cuMemFree_v2), (asked(b"cuMemAlloc"), asked(b"cuMemFree"))):
            data = ctypes.c_uint64()
            heard.clear()
            call(allocate(ctypes.byref(data), ctypes.c_size_t(8 << 20)))
            call(free(ctypes.c_void_p(data.value), ctypes.c_size_t()))
            if heard != [(ALLOCATED, data.value), (FREED, data.value)]:
                raise SystemExit(f"ucx: {data.value:#x} was allocated and freed, and UCX heard {heard}")
        print("step", k + 1, flush=True)
        time.sleep(args.step_ms / 1000)
    print("ucx: heard of everything")


if __name__ == "__main__":
    main()
