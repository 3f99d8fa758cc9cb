#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An inference server of PyTorch: a process without CUDA, which clients reach by HTTP, and an engine on each GPU.

An engine has a small decoder of random weights and its cache of keys and values, and makes each token by a CUDA graph.
A round is requests to all engines at once; each answer has the likeliest tokens.
"""
import concurrent.futures
import http.server
import multiprocessing
import threading
import urllib.request

from rounds import digest, need, run

need("torch")

import torch  # noqa: E402

WIDTH, LAYERS, WORDS, TOKENS = 512, 4, 8192, 128


class Decoder:
    """One sequence at a time. After step(), token has the likeliest word behind those that were put there so far."""

    def __init__(self):
        torch.manual_seed(9)
        self.words = self.weight(WORDS, WIDTH)
        self.layers = [[self.weight(WIDTH, size) for size in (3 * WIDTH, WIDTH)] +
                       [self.weight(WIDTH, 4 * WIDTH), self.weight(4 * WIDTH, WIDTH)] for _ in range(LAYERS)]
        self.cache = torch.zeros(LAYERS, 2, TOKENS, WIDTH, device="cuda")
        self.order = torch.arange(TOKENS, device="cuda")
        self.token, self.position = (torch.zeros(1, dtype=torch.long, device="cuda") for _ in range(2))
        beside = torch.cuda.Stream()
        with torch.no_grad(), torch.cuda.stream(beside):
            self.step()     # cuBLAS makes what it needs, which no graph may have
        beside.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.no_grad(), torch.cuda.graph(self.graph):
            self.step()

    @staticmethod
    def weight(rows, columns):
        return torch.randn(rows, columns, device="cuda") / rows ** 0.5

    def step(self):
        state = self.words[self.token]
        for (mixing, out, up, down), (keys, values) in zip(self.layers, self.cache):
            query, key, value = (torch.nn.functional.layer_norm(state, [WIDTH]) @ mixing).chunk(3, dim=1)
            keys.index_copy_(0, self.position, key)
            values.index_copy_(0, self.position, value)
            scores = (query @ keys.T / WIDTH ** 0.5).masked_fill(self.order > self.position, float("-inf"))
            state = state + scores.softmax(1) @ values @ out
            state = state + (torch.nn.functional.layer_norm(state, [WIDTH]) @ up).relu() @ down
        self.token.copy_((state @ self.words.T).argmax(1))
        self.position.add_(1)

    def answer(self, prompt):
        found = []
        self.position.zero_()
        for at in range(TOKENS):
            if at < len(prompt):
                self.token.fill_(prompt[at])
            self.graph.replay()
            found.append(self.token.item())
        return found[len(prompt):]


def engine(gpu, requests):
    torch.cuda.set_device(gpu)
    decoder = Decoder()
    while prompt := requests.recv():
        requests.send(decoder.answer(prompt))


class Engine:
    def __init__(self, gpu):
        self.lock = threading.Lock()
        self.requests, theirs = multiprocessing.get_context("spawn").Pipe()
        self.process = multiprocessing.get_context("spawn").Process(target=engine, args=(gpu, theirs), daemon=True)
        self.process.start()
        theirs.close()      # so that its end is seen

    def answer(self, prompt):
        with self.lock:
            self.requests.send(prompt)
            return self.requests.recv()


def handler(engines):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):  # pylint: disable=invalid-name
            prompt = [*self.rfile.read(int(self.headers["Content-Length"]))]
            answer = " ".join(map(str, engines[int(self.path[1:])].answer(prompt))).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format, *args):   # pylint: disable=redefined-builtin
            pass
    return Handler


def digest_of(answers, copies):
    """The engines have the same weights, so the digest is that of one, however many there are."""
    answers = list(answers)
    if any(answers[at] != answers[at - at % copies] for at in range(len(answers))):
        raise SystemExit("server: the engines have different answers")
    return digest(*answers[::copies])


def main():
    engines = [Engine(gpu) for gpu in range(torch.cuda.device_count())]
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler(engines))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    clients = concurrent.futures.ThreadPoolExecutor(4 * len(engines))

    def ask(number):
        url = f"http://127.0.0.1:{server.server_port}/{number % len(engines)}"
        with urllib.request.urlopen(url, b"request %d" % (number // len(engines)), timeout=300) as answer:
            return answer.read()

    run(lambda: digest_of(clients.map(ask, range(4 * len(engines))), len(engines)))


if __name__ == "__main__":
    main()
