/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_MACHINE_H
#define CUDAW_MACHINE_H
/*
 * How the libraries of this kind of machine are marked, and where they lie. The names of directories are
 * those of Debian, and of NVIDIA's toolkits; the flags of ld.so.cache are glibc's (sysdeps/generic/ldconfig.h:
 * that of the machine's 64-bit libraries, and FLAG_ELF_LIBC6).
 */
#include <elf.h>

#if defined(__x86_64__)
#define MACHINE_ELF     EM_X86_64
#define MACHINE_CACHE   0x303
#define MACHINE_TRIPLET "x86_64-linux-gnu"
#define MACHINE_CUDA    "x86_64-linux"
#elif defined(__aarch64__)
#define MACHINE_ELF     EM_AARCH64
#define MACHINE_CACHE   0xa03
#define MACHINE_TRIPLET "aarch64-linux-gnu"
#define MACHINE_CUDA    "sbsa-linux"
#else
#error "cudaw runs on x86-64 and AArch64 only"
#endif

#endif
