#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
An inference server that gives way: while nobody asks, other jobs get the memory of its model.

    cudaw run --turns -- python inference_server.py 8000 16384       # port, MiB of the model [, address]
    curl localhost:8000

The server does nothing for that. A job that makes no CUDA call is idle, and gives its memory to those who wait. The
next request waits in its first CUDA call until the memory is back: give clients a timeout of a few turns.
"""
import http.server
import sys

import gpu

model = gpu.Memory(int(sys.argv[2]) << 20)
model.fill(42)


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):   # pylint: disable=invalid-name
        answer = str(model.read(1)[0]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format, *args):   # pylint: disable=redefined-builtin
        pass


with http.server.HTTPServer(((*sys.argv[3:], "localhost")[0], int(sys.argv[1])), Handler) as server:
    print("serves port", server.server_port, flush=True)
    server.serve_forever()
