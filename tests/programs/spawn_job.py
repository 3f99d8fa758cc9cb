#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A Python job with a child by spawn, and memory that both share: the driver through ctypes.

The queue and the lock have semaphores in /dev/shm, which the child has mapped by a name that they no longer have. A
block of shared memory has a name there, and a second one by a hard link. In each step the child adds one to the
block, and the job compares it with a count of its own and with one on the GPU. Prints "block NAME" first. Ends when
it gets SIGINT.
"""
import argparse
import ctypes
import multiprocessing
import os
import signal
import time
from multiprocessing import shared_memory

PR_SET_PDEATHSIG = 1


def call(result):
    if result:
        raise SystemExit(f"spawn_job: CUDA error {result}")


def work(orders, lock, name):
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    block = shared_memory.SharedMemory(name)
    while orders.get():
        with lock:
            add_one(block)
    block.close()


def count_of(block):
    return int.from_bytes(block.buf[:8], "little")


def add_one(block):
    block.buf[:8] = (count_of(block) + 1).to_bytes(8, "little")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--step-ms", type=float, default=10)
    args = parser.parse_args()
    ended = []
    signal.signal(signal.SIGINT, lambda *_: ended.append(True))
    context = multiprocessing.get_context("spawn")
    orders, lock = context.Queue(), context.Lock()
    block = shared_memory.SharedMemory(create=True, size=1 << 16)
    path = f"/dev/shm/{block.name}"
    os.link(path, f"{path}-again")
    print("block", block.name, flush=True)
    child = context.Process(target=work, args=(orders, lock, block.name), daemon=True)
    child.start()
    cuda, primary, data, found = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_uint64()
    call(cuda.cuInit(0))
    call(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(primary), 0))
    call(cuda.cuCtxSetCurrent(primary))
    call(cuda.cuMemAlloc_v2(ctypes.byref(data), ctypes.c_size_t(1 << 20)))
    step = 0
    while not ended:
        orders.put(True)
        step += 1
        while True:
            with lock:
                count = count_of(block)
            if count != step - 1:
                break
            time.sleep(0.001)
        call(cuda.cuMemcpyHtoD_v2(data, ctypes.byref(ctypes.c_uint64(step)), ctypes.c_size_t(8)))
        time.sleep(args.step_ms / 1000)
        call(cuda.cuMemcpyDtoH_v2(ctypes.byref(found), data, ctypes.c_size_t(8)))
        if (count, found.value) != (step, step):
            raise SystemExit(f"spawn_job: step {step}: {count} in the block, {found.value} on the GPU")
        print("step", step, flush=True)
    orders.put(False)
    child.join()
    os.unlink(f"{path}-again")
    block.close()
    block.unlink()
    print("spawn_job: every step right", flush=True)


if __name__ == "__main__":
    main()
