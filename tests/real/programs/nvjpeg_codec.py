#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""nvJPEG by its C interface: each image is encoded and decoded by a codec of its own."""
import ctypes

from rounds import digest, library, need, run

need("torch")
NVJPEG = library("libnvjpeg.so.13")

import torch  # noqa: E402

SIZE = 512
NO_SUBSAMPLING = 0      # NVJPEG_CSS_444
RGB_INTERLEAVED = 5     # NVJPEG_INPUT_RGBI, NVJPEG_OUTPUT_RGBI


class Image(ctypes.Structure):
    """nvjpegImage_t"""
    _fields_ = [("channel", ctypes.c_void_p * 4), ("pitch", ctypes.c_size_t * 4)]


def call(name, *args):
    status = getattr(NVJPEG, name)(*args)
    if status:
        raise SystemExit(f"{name}: status {status}")


def made(name, *args):
    """The handle that the call makes; it is the last argument, or the last before a stream."""
    handle = ctypes.c_void_p()
    call(name, *(ctypes.byref(handle) if arg is made else arg for arg in args))
    return handle


def image_of(pixels):
    image = Image()
    image.channel[0] = pixels.data_ptr()
    image.pitch[0] = 3 * SIZE
    return image


def encode(codec, pixels):
    state = made("nvjpegEncoderStateCreate", codec, made, None)
    params = made("nvjpegEncoderParamsCreate", codec, made, None)
    call("nvjpegEncoderParamsSetQuality", params, 85, None)
    call("nvjpegEncoderParamsSetSamplingFactors", params, NO_SUBSAMPLING, None)
    call("nvjpegEncodeImage", codec, state, params, ctypes.byref(image_of(pixels)),
         RGB_INTERLEAVED, SIZE, SIZE, None)
    size = ctypes.c_size_t()
    call("nvjpegEncodeRetrieveBitstream", codec, state, None, ctypes.byref(size), None)
    file = ctypes.create_string_buffer(size.value)
    call("nvjpegEncodeRetrieveBitstream", codec, state, file, ctypes.byref(size), None)
    torch.cuda.synchronize()
    call("nvjpegEncoderParamsDestroy", params)
    call("nvjpegEncoderStateDestroy", state)
    return file.raw[:size.value]


def decode(codec, file):
    state = made("nvjpegJpegStateCreate", codec, made)
    pixels = torch.zeros(SIZE, SIZE, 3, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    call("nvjpegDecode", codec, state, file, ctypes.c_size_t(len(file)), RGB_INTERLEAVED,
         ctypes.byref(image_of(pixels)), None)
    torch.cuda.synchronize()
    call("nvjpegJpegStateDestroy", state)
    return pixels


def one_round():
    results = []
    for k in range(5):
        codec = made("nvjpegCreateSimple", made)
        across = torch.linspace(0, 7 + k, SIZE)
        wave = (torch.outer(across.sin(), across.cos()) + 1) * 127
        pixels = torch.stack([wave, wave.T, wave.flip(0)], 2).to(torch.uint8).cuda().contiguous()
        file = encode(codec, pixels)
        results += [file, decode(codec, file)]
        call("nvjpegDestroy", codec)
    return digest(*results)


run(one_round)
