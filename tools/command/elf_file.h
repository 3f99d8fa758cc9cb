/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_ELF_FILE_H
#define CUDAW_ELF_FILE_H
/*
 * Answers the command's questions about ELF files, by libelf. The injected library reads ELF files
 * by hand; kparams/elf.h has the reason.
 */
#include <stdbool.h>
#include <stddef.h>

/* True for a 64-bit ELF program that asks for no dynamic loader. */
bool elf_file_is_static(int fd);

/*
 * True for an ELF file whose section headers pass its end. Linkers put them last, so this is a file
 * that was cut, as by a copy.
 */
bool elf_file_is_cut(const void *data, size_t size);

#endif
