#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The smallest Python job: the driver through ctypes, so that it starts at once.

It fills a buffer and reads it back in every step, and ends on SIGTERM with exit status 7, from a
handler written in Python, which runs only when the interpreter gets control back.
"""
import argparse
import ctypes
import mmap
import os
import signal
import subprocess
import sys
import threading
import time

WRONG_DATA = 65     # an exit status: STEP_WRONG_DATA of step.h


def call(result):
    if result:
        raise SystemExit(f"ctypes_job: CUDA error {result}")


def map_late(path):
    while not os.path.exists(path):
        time.sleep(0.01)
    with open(path, "r+b") as file:
        mapped = mmap.mmap(file.fileno(), 0)
    threading.Event().wait()
    mapped.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--mib", type=int, default=8)
    parser.add_argument("--step-ms", type=float, default=0)
    parser.add_argument("--tell-signals", action="store_true", help="handle SIGUSR1 and SIGUSR2")
    parser.add_argument("--spawn", action="store_true", help="run another program in every step")
    parser.add_argument("--map-late", help="map this file once it is there")
    args = parser.parse_args()
    if args.map_late:
        threading.Thread(target=map_late, args=[args.map_late], daemon=True).start()
    size = args.mib << 20
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
    if args.tell_signals:
        for number in (signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, lambda n, _: print("got", signal.Signals(n).name, flush=True))
    cuda = ctypes.CDLL("libcuda.so.1")
    context = ctypes.c_void_p()
    data = ctypes.c_uint64()
    host = ctypes.create_string_buffer(size)
    call(cuda.cuInit(0))
    call(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    call(cuda.cuCtxSetCurrent(context))
    call(cuda.cuMemAlloc_v2(ctypes.byref(data), ctypes.c_size_t(size)))
    for k in range(args.steps):
        call(cuda.cuMemsetD8_v2(data, ctypes.c_ubyte(k & 255), ctypes.c_size_t(size)))
        call(cuda.cuMemcpyDtoH_v2(host, data, ctypes.c_size_t(size)))
        if host.raw != bytes([k & 255]) * size:
            print(f"ctypes_job: wrong in step {k + 1}", file=sys.stderr)
            sys.exit(WRONG_DATA)
        if args.spawn:
            subprocess.run(["true"], check=True)
        print("step", k + 1, flush=True)
        time.sleep(args.step_ms / 1000)
    if "STEP_LINGER" in os.environ:     # see step.h
        sys.stdin.read()
    print("ctypes_job: every step right")


if __name__ == "__main__":
    main()
