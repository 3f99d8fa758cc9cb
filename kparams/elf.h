/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_KPARAMS_ELF_H
#define CUDAW_KPARAMS_ELF_H
/*
 * The ELF structures of a cubin, a 64-bit little-endian file for EM_CUDA: its header, its sections
 * and its symbols.
 *
 * libelf is not used here, since this code also runs inside programs. Debian's static libelf has
 * TLS relocations that no shared library takes (R_X86_64_TPOFF32 in elf_error.o), and the dynamic
 * one would bring libelf, libz and on newer systems libzstd into programs that are not ours. The
 * command does use libelf, and the tests hold this reader against it (tests/elf_oracle.h).
 */
#include "kparams/internal.h"
#include "kparams/reader.h"

#include <elf.h>

struct kp_elf {
	const uint8_t *data;
	size_t size;
	uint64_t sections; /* offset of the section headers, which all lie inside the image */
	size_t nsections;
	struct kp_error *err;
};

/* Read the header of GPU code. */
int kp_elf_header(const void *data, size_t size, Elf64_Ehdr *header, struct kp_error *err);

/* Open @size bytes at @data. @err serves the calls below too. */
int kp_elf_open(struct kp_elf *elf, const void *data, size_t size, struct kp_error *err);

/* The header of section @i, which is below nsections. */
Elf64_Shdr kp_elf_section(const struct kp_elf *elf, size_t i);

/* Read the bytes of section @i; a section without bytes in the file has none. */
int kp_elf_open_section(const struct kp_elf *elf, size_t i, struct kp_reader *r);

struct kp_elf_symbols {
	struct kp_reader symbols, strings;
	struct kp_reader large; /* indices of sections that do not fit into a symbol */
};

struct kp_elf_symbol {
	Elf64_Sym raw;
	uint32_t section;
};

/* Read the symbol table in section @table. */
int kp_elf_open_symbols(const struct kp_elf *elf, size_t table, struct kp_elf_symbols *symbols);

/* The next symbol; false at the end. */
bool kp_elf_next_symbol(struct kp_elf_symbols *symbols, struct kp_elf_symbol *symbol);

/* Its name; NULL if that is empty, or has no end. */
const char *kp_elf_symbol_name(const struct kp_elf_symbols *symbols,
			       const struct kp_elf_symbol *symbol);

#endif
