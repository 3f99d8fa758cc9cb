/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_BESIDE_H
#define CUDAW_BESIDE_H
/*
 * Libraries of NVIDIA's that work with the GPU beside the CUDA driver: they open the device files by
 * themselves, and have objects of their own refer to those of libcuda.so. The driver's checkpoint of a
 * process does not know of them.
 *
 * libnvcuvid is loaded by nvJPEG when it makes its first handle, and by video decoders. A checkpoint
 * while it makes its objects fails nvjpegCreateEx() or nvjpegJpegStateCreate() with status 5, or has
 * nvJPEG choose another decoder; after one at a later time the JPEG hardware never ends its work
 * [H200, driver 580.159: tests/gpu/nvjpeg.py]. libnvidia-encode, for video encoders, is built in the
 * same way; what a checkpoint does to it is not measured, since the H200 has no encoder.
 */
#include <stddef.h>
#include <sys/types.h>

#define BESIDE_SIZE 64

/*
 * 1 if the process @pid (0: this one) maps such a library: @name is its file's name then. 0 if it maps none, or a
 * negative errno if that cannot be seen.
 */
int beside_driver(pid_t pid, char name[static BESIDE_SIZE]);

#endif
