#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a framework sees of the GPU's memory, and how much it gets of it, in pieces of 64 MiB.

usage: limited.py torch|cupy|jax
"""
import os
import sys

MIB = 1 << 20
PIECE = 64 * MIB

# JAX takes its share at once.
os.environ.pop("XLA_PYTHON_CLIENT_PREALLOCATE", None)


def say(what, size):
    print(what, size // MIB, flush=True)


def fill(take, error):
    """Take pieces until one is refused."""
    pieces = []
    try:
        while len(pieces) < 4096:
            pieces.append(take())
    except error:
        print("refused:", error.__name__, flush=True)
    say("taken", len(pieces) * PIECE)


def with_torch():
    import torch
    say("total", torch.cuda.get_device_properties(0).total_memory)
    say("shown", torch.cuda.mem_get_info()[1])
    fill(lambda: torch.empty(PIECE, dtype=torch.uint8, device="cuda"), torch.cuda.OutOfMemoryError)
    torch.cuda.empty_cache()
    print("sum", int(torch.ones(1000, device="cuda").sum()))


def with_cupy():
    import cupy
    say("total", cupy.cuda.runtime.getDeviceProperties(0)["totalGlobalMem"])
    say("shown", cupy.cuda.Device(0).mem_info[1])
    fill(lambda: cupy.empty(PIECE, dtype=cupy.uint8), cupy.cuda.memory.OutOfMemoryError)
    cupy.get_default_memory_pool().free_all_blocks()
    print("sum", int(cupy.ones(1000).sum()))


def with_jax():
    import jax
    import jax.numpy as jnp
    gpu = jax.devices("gpu")[0]
    say("shown", gpu.memory_stats()["bytes_limit"])
    fill(lambda: jax.block_until_ready(jax.device_put(jnp.zeros(PIECE, dtype=jnp.uint8), gpu)),
         jax.errors.JaxRuntimeError)
    print("sum", int(jnp.ones(1000).sum()))


try:
    {"torch": with_torch, "cupy": with_cupy, "jax": with_jax}[sys.argv[1]]()
except ImportError as missing:
    print(f"skip: {missing}")
    sys.exit(77)
