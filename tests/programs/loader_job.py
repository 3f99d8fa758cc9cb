#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A Python job with all that a DataLoader has, without PyTorch: the driver through ctypes, and worker
processes, forked when CUDA is in use already, whose batches come through shared memory.

A worker fills an unlinked file in /dev/shm and sends it as PyTorch does: a queue (a pipe and
semaphores) has a ticket, for which a thread of the worker hands out the descriptor over a Unix
socket. Each batch goes through the GPU and back, pinned. The program also waits by epoll on an
eventfd, has a socket pair, a memfd, a deleted file, one in /dev/shm that is mapped, two files of which it
holds a record lock (loader_job-locked and, which is mapped, loader_job-mapped in TMPDIR), and a log file
that it appends to.
"""
import argparse
import ctypes
import fcntl
import mmap
import multiprocessing
import multiprocessing.reduction
import os
import select
import signal
import socket
import sys
import tempfile
import time

SIZE = 1 << 20
PR_SET_PDEATHSIG = 1
WRONG_DATA = 65     # an exit status: STEP_WRONG_DATA of step.h


def call(result):
    if result:
        raise SystemExit(f"loader_job: CUDA error {result}")


def pattern(k):
    return bytes((k * 7 + i) & 255 for i in range(64)) * (SIZE // 64)


def work(orders, made):
    """A worker: makes the batches that it is asked for until it is asked for None. It ends with its
    parent, however that ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    while (k := orders.get()) is not None:
        fd, path = tempfile.mkstemp(dir="/dev/shm", prefix="loader_job-")
        os.unlink(path)
        os.ftruncate(fd, SIZE)
        with mmap.mmap(fd, SIZE) as memory:
            memory[:] = pattern(k)
        made.put((k, multiprocessing.reduction.DupFd(fd)))
        os.close(fd)


class Loader:
    def __init__(self, workers, steps):
        context = multiprocessing.get_context("fork")
        self.orders = context.Queue()
        self.made = context.Queue()
        self.steps, self.asked, self.early = steps, 0, {}
        self.workers = [context.Process(target=work, args=(self.orders, self.made), daemon=True)
                        for _ in range(workers)]
        for worker in self.workers:
            worker.start()
        for _ in range(2 * workers):
            self.ask()

    def ask(self):
        if self.asked < self.steps:
            self.orders.put(self.asked)
        self.asked += 1

    def batch(self, k):
        """Workers may be done in any order."""
        while k not in self.early:
            number, ticket = self.made.get()
            fd = ticket.detach()
            with mmap.mmap(fd, SIZE) as memory:
                self.early[number] = memory[:]
            os.close(fd)
        self.ask()
        return self.early.pop(k)

    def end(self):
        for _ in self.workers:
            self.orders.put(None)
        for worker in self.workers:
            worker.join()


class Things:
    """Descriptors of many kinds; test() uses each."""

    def __init__(self):
        self.events, self.epoll = eventfd(), select.epoll()
        self.epoll.register(self.events, select.EPOLLIN)
        self.pair = socket.socketpair()
        self.memory = os.memfd_create("loader_job")
        self.deleted = tempfile.TemporaryFile()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind("\0loader_job-%d" % os.getpid())
        self.listener.listen()
        self.unlinked = tempfile.TemporaryFile(dir="/dev/shm")
        self.unlinked.truncate(SIZE)
        self.shared = mmap.mmap(self.unlinked.fileno(), SIZE)
        for file in (self.memory, self.deleted.fileno()):
            os.pwrite(file, bytes(SIZE), 0)
        self.locked = [open(os.path.join(tempfile.gettempdir(), name), "w+b")
                       for name in ("loader_job-locked", "loader_job-mapped")]
        for file in self.locked:
            file.truncate(SIZE)
            fcntl.lockf(file, fcntl.LOCK_EX, 16)
        self.mapped = mmap.mmap(self.locked[1].fileno(), SIZE)

    def test(self, k):
        count, last = (n.to_bytes(8, "little") for n in (k, max(k - 1, 0)))
        os.write(self.events, (k + 1).to_bytes(8, "little"))
        assert self.epoll.poll(10), "epoll"
        assert int.from_bytes(os.read(self.events, 8), "little") == k + 1, "eventfd"
        self.pair[0].send(count)
        assert self.pair[1].recv(8) == count, "socketpair"
        for file in (self.memory, self.deleted.fileno()):
            assert os.pread(file, 8, SIZE - 8) == last, "a file"
            os.pwrite(file, count, SIZE - 8)
        assert self.shared[:8] == last, "shared memory"
        self.shared[:8] = count


def eventfd():
    """os.eventfd() came with Python 3.10."""
    fd = ctypes.CDLL(None, use_errno=True).eventfd(0, 0)
    assert fd >= 0, os.strerror(ctypes.get_errno())
    return fd


class Gpu:
    """A buffer on the GPU, and a pinned one."""

    def __init__(self):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        context, self.data = ctypes.c_void_p(), ctypes.c_uint64()
        self.host = ctypes.c_void_p()
        call(self.cuda.cuInit(0))
        call(self.cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
        call(self.cuda.cuCtxSetCurrent(context))
        call(self.cuda.cuMemAlloc_v2(ctypes.byref(self.data), ctypes.c_size_t(SIZE)))
        call(self.cuda.cuMemHostAlloc(ctypes.byref(self.host), ctypes.c_size_t(SIZE), 0))

    def put(self, batch):
        ctypes.memmove(self.host, batch, SIZE)
        call(self.cuda.cuMemcpyHtoD_v2(self.data, self.host, ctypes.c_size_t(SIZE)))

    def get(self):
        ctypes.memset(self.host, 0, SIZE)
        call(self.cuda.cuMemcpyDtoH_v2(self.host, self.data, ctypes.c_size_t(SIZE)))
        return ctypes.string_at(self.host, SIZE)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--step-ms", type=float, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--log", default=os.devnull, help="append the steps to this file")
    parser.add_argument("--stay", help="after the steps, wait with all that it has until there is this file")
    args = parser.parse_args()
    gpu, things = Gpu(), Things()
    loader = Loader(args.workers, args.steps)
    with open(args.log, "a", encoding="utf-8") as log:
        for k in range(args.steps):
            gpu.put(loader.batch(k))
            time.sleep(args.step_ms / 1000)
            things.test(k)
            if gpu.get() != pattern(k):
                print(f"loader_job: wrong in step {k + 1}", file=sys.stderr)
                sys.exit(WRONG_DATA)
            for file in (sys.stdout, log):
                print("step", k + 1, file=file, flush=True)
    while args.stay and not os.path.exists(args.stay):
        time.sleep(0.01)
    loader.end()
    print("loader_job: every step right")


if __name__ == "__main__":
    main()
