#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A server in the shape that inference servers have: a process without CUDA, which clients reach by TCP; below it an
engine by spawn, which alone uses the GPU, through ctypes; beside that a client.

They are connected by TCP, the engine to one of the server's ports and the client to the other, by IPv6. A request
repeats a number for --bytes; the engine adds it to one in GPU memory. The answer is the sum, which the client compares
with its own. With --engines N there are so many engines, which get each request, and give the same answer. Prints
"engine PID" of each, "port N" and, for each answer, "step N". Ends when it gets SIGINT.

With --watches LIBRARY DEVICE the client counts the GPUs by that NVML of the tests before each request. With --watchers N
so many children of it count them all the time, and print "watcher PID".

With --shares 1 the first process counts its answers in a file of /dev/shm, which the client compares, too.

With --connects PORT the first process connects to that port of this machine, and leaves it at that.

With --inits 1 the first process initialises CUDA, and makes no other call of it. The process that --title names overwrites its environment, as Python's setproctitle does unless SPT_NOENV is set.
"""
import argparse
import contextlib
import ctypes
import multiprocessing
import os
import signal
import socket
import sys
import time
from multiprocessing import shared_memory

PR_SET_PDEATHSIG = 1


def call(result):
    if result:
        raise SystemExit(f"server_job: CUDA error {result}")


def die_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def read(connection, size):
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            return None
        data += more
    return data


def set_title():
    if os.environ.get("SPT_NOENV"):
        return
    for name, value in os.environ.items():
        os.environ[name] = value    # a copy, which is elsewhere
    with open("/proc/self/stat", encoding="utf-8") as file:
        start, end = map(int, file.read().rpartition(")")[2].split()[47:49])
    ctypes.memset(start, 0, end - start)


def engine(port, size, titled):
    die_with_parent()
    if titled:
        set_title()
    connection = socket.create_connection(("127.0.0.1", port))
    cuda, primary, data, found = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_uint64()
    call(cuda.cuInit(0))
    call(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(primary), 0))
    call(cuda.cuCtxSetCurrent(primary))
    call(cuda.cuMemAlloc_v2(ctypes.byref(data), ctypes.c_size_t(1 << 20)))
    call(cuda.cuMemsetD8_v2(data, ctypes.c_ubyte(0), ctypes.c_size_t(1 << 20)))
    while request := read(connection, size):
        call(cuda.cuMemcpyDtoH_v2(ctypes.byref(found), data, ctypes.c_size_t(8)))
        found.value += int.from_bytes(request[-8:], "little")
        call(cuda.cuMemcpyHtoD_v2(data, ctypes.byref(found), ctypes.c_size_t(8)))
        connection.sendall(found.value.to_bytes(8, "little"))


def watch(library, device):
    """What counts the GPUs."""
    nvml, os.environ["TEST_NVML_DEVICE"] = ctypes.CDLL(library), device
    call(nvml.nvmlInit_v2())
    return lambda: call(nvml.nvmlDeviceGetCount_v2(ctypes.byref(ctypes.c_uint())))


def start_watchers(count, watches, pause_s):
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for _ in range(count):
        if os.fork():
            continue
        die_with_parent()
        look = watch(*watches)
        print("watcher", os.getpid(), flush=True)
        while True:
            look()
            time.sleep(pause_s)


def client(port, size, pause_s, watches, watchers, shared):
    die_with_parent()
    start_watchers(watchers, watches, pause_s)
    look = watch(*watches) if watches else lambda: None
    connection = socket.create_connection(("::1", port))
    step = total = 0
    while True:
        step += 1
        total += step
        look()
        if shared and int.from_bytes(shared.buf[:8], "little") != step - 1:
            raise SystemExit(f"server_job: step {step}: {int.from_bytes(shared.buf[:8], 'little')} answers are shared")
        connection.sendall(step.to_bytes(8, "little") * (size // 8))
        answer = read(connection, 8)
        if answer is None:
            return
        if int.from_bytes(answer, "little") != total:
            raise SystemExit(f"server_job: step {step}: {int.from_bytes(answer, 'little')}, expected {total}")
        print("step", step, flush=True)
        time.sleep(pause_s)


def listen(family, address):
    listening = socket.socket(family)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind((address, 0))
    listening.listen()
    return listening


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bytes", type=int, default=8)
    parser.add_argument("--step-ms", type=float, default=10)
    parser.add_argument("--engines", type=int, default=1)
    parser.add_argument("--inits", type=int, default=0)
    parser.add_argument("--watches", nargs=2)
    parser.add_argument("--watchers", type=int, default=0)
    parser.add_argument("--shares", type=int, default=0)
    parser.add_argument("--connects", type=int)
    parser.add_argument("--title", choices=("server", "engine"))
    args = parser.parse_args()
    if args.inits:
        call(ctypes.CDLL("libcuda.so.1").cuInit(0))
    shared = shared_memory.SharedMemory(create=True, size=8) if args.shares else None
    outside = args.connects and socket.create_connection(("127.0.0.1", args.connects))
    ended = []
    signal.signal(signal.SIGINT, lambda *_: ended.append(True))
    context = multiprocessing.get_context("spawn")
    for_engine, for_clients = listen(socket.AF_INET, "127.0.0.1"), listen(socket.AF_INET6, "::1")
    children = [context.Process(target=engine, daemon=True,
                                args=(for_engine.getsockname()[1], args.bytes, args.title == "engine"))
                for _ in range(args.engines)]
    for child in children:
        child.start()
    if args.title == "server":
        set_title()
    to_engines = [for_engine.accept()[0] for _ in children]
    for child in children:
        print("engine", child.pid, flush=True)
    print("port", for_clients.getsockname()[1], flush=True)
    if os.fork() == 0:
        for_clients_port = for_clients.getsockname()[1]
        for mine in (for_engine, for_clients, *to_engines):
            mine.close()
        # At its end the server closes the connection, also while a request is under way.
        with contextlib.suppress(ConnectionError):
            client(for_clients_port, args.bytes, args.step_ms / 1000, args.watches, args.watchers, shared)
        os._exit(0)
    from_client = for_clients.accept()[0]
    while not ended:
        request = read(from_client, args.bytes)
        if request is None:
            sys.exit("server_job: the client is gone")
        for to_engine in to_engines:
            to_engine.sendall(request)
        answers = {read(to_engine, 8) for to_engine in to_engines}
        if None in answers or len(answers) > 1:
            sys.exit(f"server_job: an engine is gone, or has another answer: {answers}")
        if shared:
            shared.buf[:8] = (int.from_bytes(shared.buf[:8], "little") + 1).to_bytes(8, "little")
        from_client.sendall(answers.pop())
    from_client.close()
    if shared:
        shared.unlink()
    os.wait()
    for connection in (*to_engines, *([outside] if outside else [])):
        connection.close()
    for child in children:
        child.join()
    print("server_job: every answer right", flush=True)


if __name__ == "__main__":
    main()
