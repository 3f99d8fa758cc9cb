/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_ELF_FILE_H
#define CUDAW_ELF_FILE_H
/*
 * What the command asks of ELF files, by libelf. The libraries read them by hand, and why is said
 * in kparams/elf.h.
 */
#include <stdbool.h>
#include <stddef.h>

/* True for a 64-bit ELF program that asks for no dynamic loader. */
bool elf_file_is_static(int fd);

struct elf_part {
	size_t offset, size;
};

/*
 * Split a file's contents into parts in *@parts, which is to be freed: each section of an ELF file,
 * and what lies before, between and behind them. Anything else is one part. Returns how many there
 * are, or -ENOMEM.
 */
int elf_file_parts(const void *data, size_t size, struct elf_part **parts);

/*
 * True for an ELF file whose section headers pass its end. Linkers put them last, so this is a file
 * that was cut, as by a copy.
 */
bool elf_file_is_cut(const void *data, size_t size);

#endif
