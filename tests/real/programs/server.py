#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An inference server of PyTorch, in the shape that vLLM and SGLang have.

The first process has no CUDA: clients reach it by HTTP. Below it is an engine by spawn, to which requests go by
ZeroMQ's ipc:// and from which answers come by its tcp://. Below that are --workers, by spawn, one for each GPU: they
get their orders through a ring in shared memory. Each has a part of a decoder of random weights, and all of the cache
of keys and values, in memory of cuMemCreate; they make each token together, by NCCL and a CUDA graph.

A round is requests of four clients at once; each answer has the likeliest tokens. --width 9216 is a model of 16 GB.
With --cpu all is the same without GPUs, CUDA graphs and cuMemCreate, and with gloo.
"""
import argparse
import concurrent.futures
import ctypes
import functools
import glob
import http.server
import multiprocessing
import os
import pickle
import signal
import tempfile
import threading
import urllib.request
from multiprocessing import shared_memory

from rounds import digest, need, run, skip

# Before PyTorch is there: its memory is made by cuMemCreate.
os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
need("torch", "zmq")

import zmq  # noqa: E402

CLIENTS, END = 4, None
SLOTS, SLOT_BYTES = 8, 16384
LOOK_S = 5      # after which one looks whether the other end has ended
PR_SET_PDEATHSIG = 1
SPAWN = multiprocessing.get_context("spawn")


def end_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def wait(comes, others):
    """Until @comes(seconds) is true; the processes that would make it come must not end."""
    while not comes(LOOK_S):
        if not all(other.is_alive() for other in others):
            raise SystemExit("server: a process has ended")


class Ring:
    """Messages of one process to several others, each of which gets all. It is made by spawn's pickles for them."""

    def __init__(self, readers):
        self.memory = shared_memory.SharedMemory(create=True, size=SLOTS * SLOT_BYTES)
        self.filled = [SPAWN.Semaphore(0) for _ in range(readers)]
        self.room = [SPAWN.Semaphore(SLOTS) for _ in range(readers)]
        self.next = 0

    def slot(self):
        at = self.next % SLOTS * SLOT_BYTES
        self.next += 1
        return self.memory.buf[at:at + SLOT_BYTES]

    def put(self, message, others):
        for room in self.room:
            wait(lambda timeout, room=room: room.acquire(timeout=timeout), others)
        data = pickle.dumps(message)
        self.slot()[:len(data)] = data
        for filled in self.filled:
            filled.release()

    def get(self, reader, others):
        wait(lambda timeout: self.filled[reader].acquire(timeout=timeout), others)
        message = pickle.loads(self.slot())
        self.room[reader].release()
        return message


def worker(args, rank, orders, answers, directory):
    end_with_parent()
    from server_decoder import Decoder, join_others, leave_others   # only here PyTorch is needed
    join_others(args, rank, directory)
    decoder, engine_process = Decoder(args, rank), [multiprocessing.parent_process()]
    while (prompt := orders.get(rank, engine_process)) is not END:
        answer = decoder.answer(prompt)
        if rank == 0:
            answers.put(answer, engine_process)
    leave_others(args)


def engine(args, directory, port):
    end_with_parent()
    context = zmq.Context()
    requests, to_server = context.socket(zmq.PULL), context.socket(zmq.PUSH)
    requests.connect(f"ipc://{directory}/requests")
    to_server.connect(f"tcp://127.0.0.1:{port}")
    orders, answers = Ring(args.workers), Ring(1)
    workers = [SPAWN.Process(target=worker, args=(args, rank, orders, answers, directory), daemon=True)
               for rank in range(args.workers)]
    for process in workers:
        process.start()
    while True:
        wait(lambda timeout: requests.poll(timeout * 1000), workers)
        number, prompt = requests.recv_pyobj()
        orders.put(prompt, workers)
        if prompt is END:
            break
        to_server.send_pyobj((number, answers.get(0, workers)))
    for process in workers:
        process.join()
    for ring in (orders, answers):
        ring.memory.unlink()
    context.destroy()


class Engine:
    """As the first process sees it."""

    def __init__(self, args, directory):
        context = zmq.Context()
        self.requests, self.answers = context.socket(zmq.PUSH), context.socket(zmq.PULL)
        self.requests.bind(f"ipc://{directory}/requests")
        port = self.answers.bind_to_random_port("tcp://127.0.0.1")
        self.lock, self.waiting, self.count = threading.Lock(), {}, 0
        self.process = SPAWN.Process(target=engine, args=(args, directory, port))
        self.process.start()
        threading.Thread(target=self.hand_out, daemon=True).start()

    def hand_out(self):
        while True:
            try:
                wait(lambda timeout: self.answers.poll(timeout * 1000), [self.process])
            except SystemExit:
                os._exit(1)     # the clients wait
            number, answer = self.answers.recv_pyobj()
            self.waiting.pop(number).set_result(answer)

    def send(self, prompt):
        found = concurrent.futures.Future()
        with self.lock:
            self.count += 1
            self.waiting[self.count] = found
            self.requests.send_pyobj((self.count, prompt))
        return found

    def end(self):
        self.send(END)
        self.process.join()


class Handler(http.server.BaseHTTPRequestHandler):
    def __init__(self, served, *args):
        self.served = served
        super().__init__(*args)

    def do_POST(self):  # pylint: disable=invalid-name
        prompt = [*self.rfile.read(int(self.headers["Content-Length"]))]
        answer = " ".join(map(str, self.served.send(prompt).result())).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format, *args):   # pylint: disable=redefined-builtin
        pass


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=128, help="of a request and its answer")
    parser.add_argument("--workers", type=int, default=1, help="each has a GPU")
    parser.add_argument("--cpu", action="store_true")
    args = parser.parse_known_args()[0]
    found = len(glob.glob("/dev/nvidia[0-9]*"))
    if not args.cpu and found < args.workers:
        skip(f"{args.workers} GPUs needed, {found} here")
    clients = concurrent.futures.ThreadPoolExecutor(CLIENTS)
    with tempfile.TemporaryDirectory() as directory:
        served = Engine(args, directory)
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, served))
        threading.Thread(target=server.serve_forever, daemon=True).start()

        def ask(number):
            with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}", b"request %d" % number,
                                        timeout=300) as answer:
                return answer.read()
        try:
            run(lambda: digest(*clients.map(ask, range(CLIENTS))))
        finally:
            served.end()


if __name__ == "__main__":
    main()
