/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_ELF_ORACLE_H
#define CUDAW_ELF_ORACLE_H
/*
 * Holds our readers of ELF files against libelf, which the injected library cannot use
 * (kparams/elf.h). Both must see the same in a file, damaged or not:
 *
 *	elf_oracle_cubin()	kparams: the sections with their bytes, the symbols with their names,
 *				and the kernels that .nv.info describes, or that it is damaged
 *	elf_oracle_extent()	kparams: where a cubin in memory ends, which must be an intact one
 *	elf_oracle_notes()	common/find/buildid.h: the build-id among the notes
 *
 * Each returns true if they agree. If not, @why says where they differ.
 */
#include <stdbool.h>
#include <stddef.h>

#define ELF_ORACLE_WHY 256

bool elf_oracle_cubin(const void *data, size_t size, char why[ELF_ORACLE_WHY]);
bool elf_oracle_extent(const void *data, size_t size, char why[ELF_ORACLE_WHY]);
bool elf_oracle_notes(const char *path, char why[ELF_ORACLE_WHY]);

/* elf_oracle_notes() of a file with these contents. */
bool elf_oracle_notes_in(const void *data, size_t size, char why[ELF_ORACLE_WHY]);

#endif
