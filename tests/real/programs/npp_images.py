#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""NPP by its C interface: sums, colours and dilations of images."""
import ctypes

from rounds import digest, library, need, run

need("torch")
library("libnppc.so.13")
SUMS, COLOURS, SHAPES = (library(f"libnpp{part}.so.13") for part in ("ial", "icc", "im"))

import torch  # noqa: E402

SIZE = 512


class Context(ctypes.Structure):
    """NppStreamContext"""
    _fields_ = [("stream", ctypes.c_void_p), ("device", ctypes.c_int),
                ("processors", ctypes.c_int), ("threads_per_processor", ctypes.c_int),
                ("threads_per_block", ctypes.c_int), ("shared_per_block", ctypes.c_size_t),
                ("major", ctypes.c_int), ("minor", ctypes.c_int), ("flags", ctypes.c_uint),
                ("reserved", ctypes.c_int)]


class Size(ctypes.Structure):
    """NppiSize"""
    _fields_ = [("width", ctypes.c_int), ("height", ctypes.c_int)]


GPU = torch.cuda.get_device_properties(0)
CONTEXT = Context(None, 0, GPU.multi_processor_count, GPU.max_threads_per_multi_processor, 1024,
                  48 << 10, GPU.major, GPU.minor, 0, 0)


def call(function, *args):
    status = function(*args, CONTEXT)
    if status:
        raise SystemExit(f"{function.__name__}: status {status}")


def at(tensor, offset=0):
    return ctypes.c_void_p(tensor.data_ptr() + offset)


def one_round():
    image = (torch.arange(3 * SIZE * SIZE) * 31 % 251).to(torch.uint8).cuda()
    torch.cuda.synchronize()
    for k in range(40):
        colours, bright = torch.zeros_like(image), torch.zeros_like(image)
        wide = torch.zeros_like(image)
        torch.cuda.synchronize()
        call(COLOURS.nppiRGBToYUV_8u_C3R_Ctx, at(image), 3 * SIZE, at(colours), 3 * SIZE,
             Size(SIZE, SIZE))
        call(SUMS.nppiAddC_8u_C1RSfs_Ctx, at(colours), 3 * SIZE, ctypes.c_ubyte(k), at(bright),
             3 * SIZE, Size(3 * SIZE, SIZE), 0)
        # The kernel reads a pixel beyond each side of what it writes.
        inner = 3 * SIZE + 1
        call(SHAPES.nppiDilate3x3_8u_C1R_Ctx, at(bright, inner), 3 * SIZE, at(wide, inner),
             3 * SIZE, Size(3 * SIZE - 2, SIZE - 2))
        torch.cuda.synchronize()
        image = wide ^ colours
    return digest(image)


run(one_round)
