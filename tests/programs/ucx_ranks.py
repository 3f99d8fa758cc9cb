#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
Two ranks send GPU memory to each other through UCX, as a CUDA-aware MPI does: it knows the memory by the driver's
answers and its own hooks, and keeps mappings of the other's memory (legacy IPC) in a cache. Each compares every byte.

The package libucx-cu12 or libucx-cu13 has UCX.
"""
import argparse
import ctypes
import os
import socket
import time

from ctypes_job import WRONG_DATA, call
from ucx import library

IN_PROGRESS = 1             # UCS_INPROGRESS
ADDRESS, TAG = 1, 1         # UCP_EP_PARAM_FIELD_REMOTE_ADDRESS; UCP_FEATURE_TAG, UCP_PARAM_FIELD_FEATURES
TYPES, CUDA_BIT = 4, 1 << 1  # UCP_ATTR_FIELD_MEMORY_TYPES; of UCS_MEMORY_TYPE_CUDA
FAILED = (1 << 64) - 100    # UCS_PTR_IS_ERR: UCS_ERR_LAST is -100
NO_OPTIONS = bytes(512)     # of any of its structures: none of their fields


def done(status):
    if status:
        raise SystemExit(f"ucx_ranks: UCX error {status}")


class Rank:
    def __init__(self, connection):
        self.ucp = [library(name) for name in ("libucs.so.0", "libucm.so.0", "libuct.so.0", "libucp.so.0")][-1]
        context, self.worker, self.peer = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        address, size = ctypes.c_void_p(), ctypes.c_size_t()
        numbers = [ctypes.c_uint() for _ in range(3)]
        self.ucp.ucp_get_version(*map(ctypes.byref, numbers))
        asked = (ctypes.c_uint64 * 64)(TAG, TAG)
        done(self.ucp.ucp_init_version(*numbers[:2], asked, None, ctypes.byref(context)))
        known = (ctypes.c_uint64 * 64)(TYPES)
        done(self.ucp.ucp_context_query(context, known))
        if not known[3] & CUDA_BIT:     # it would copy GPU memory as if it were the host's
            raise SystemExit("ucx_ranks: UCX does not know GPU memory")
        done(self.ucp.ucp_worker_create(context, NO_OPTIONS, ctypes.byref(self.worker)))
        done(self.ucp.ucp_worker_get_address(self.worker, ctypes.byref(address), ctypes.byref(size)))
        connection.sendall(ctypes.string_at(address, size.value))
        self.other = ctypes.create_string_buffer(connection.recv(1 << 16))
        asked = (ctypes.c_uint64 * 64)(ADDRESS, ctypes.addressof(self.other))
        done(self.ucp.ucp_ep_create(self.worker, asked, ctypes.byref(self.peer)))
        for function in (self.ucp.ucp_tag_send_nbx, self.ucp.ucp_tag_recv_nbx):
            function.restype = ctypes.c_uint64

    def wait(self, request):
        if request > FAILED:
            done(request)
        while request and self.ucp.ucp_request_check_status(ctypes.c_void_p(request)) == IN_PROGRESS:
            self.ucp.ucp_worker_progress(self.worker)
        if request:
            done(self.ucp.ucp_request_check_status(ctypes.c_void_p(request)))
            self.ucp.ucp_request_free(ctypes.c_void_p(request))

    def send(self, data, size):
        self.wait(self.ucp.ucp_tag_send_nbx(self.peer, data, size, ctypes.c_uint64(TAG), NO_OPTIONS))

    def receive(self, data, size):
        everything = ctypes.c_uint64(-1)
        self.wait(self.ucp.ucp_tag_recv_nbx(self.worker, data, size, ctypes.c_uint64(TAG), everything, NO_OPTIONS))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--step-ms", type=float, default=0)
    parser.add_argument("--mib", type=int, default=8)
    args = parser.parse_args()
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    child = os.fork()
    first = bool(child)
    cuda = ctypes.CDLL("libcuda.so.1")
    context = ctypes.c_void_p()
    call(cuda.cuInit(0))
    call(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    call(cuda.cuCtxSetCurrent(context))
    rank = Rank(ends[not first])
    size = ctypes.c_size_t(args.mib << 20)
    data, host = ctypes.c_uint64(), ctypes.create_string_buffer(size.value)
    call(cuda.cuMemAlloc_v2(ctypes.byref(data), size))
    memory = ctypes.c_void_p(data.value)
    for k in range(args.steps):
        if first:
            call(cuda.cuMemsetD8_v2(memory, ctypes.c_ubyte(k), size))
            rank.send(memory, size)
            call(cuda.cuMemsetD8_v2(memory, ctypes.c_ubyte(0), size))
        rank.receive(memory, size)
        call(cuda.cuMemcpyDtoH_v2(host, memory, size))
        if host.raw != bytes([k & 255]) * size.value:
            print(f"ucx_ranks: wrong data in step {k}", flush=True)
            os._exit(WRONG_DATA)
        if not first:
            rank.send(memory, size)
        else:
            print("step", k + 1, flush=True)
            time.sleep(args.step_ms / 1000)
    if first:
        _, status = os.waitpid(child, 0)
        if status:
            raise SystemExit(f"ucx_ranks: the other rank's status is {status:#x}")
        print("ucx_ranks: every byte right", flush=True)
    os._exit(0)     # without UCX's own end, which waits for the other rank


if __name__ == "__main__":
    main()
