/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/command/elf_file.h"

#include <gelf.h>
#include <string.h>

bool elf_file_is_static(int fd)
{
	bool is_static = false;
	GElf_Phdr segment;
	size_t n;
	Elf *elf;

	elf_version(EV_CURRENT);
	/* Not mapped: libelf then does not mind damaged section headers, as the kernel does not. */
	elf = elf_begin(fd, ELF_C_READ, NULL);
	if (elf && elf_kind(elf) == ELF_K_ELF && gelf_getclass(elf) == ELFCLASS64 &&
	    !elf_getphdrnum(elf, &n)) {
		is_static = true;
		for (size_t i = 0; i < n && is_static; i++)
			is_static = gelf_getphdr(elf, i, &segment) && segment.p_type != PT_INTERP;
	}
	elf_end(elf);
	return is_static;
}

bool elf_file_is_cut(const void *data, size_t size)
{
	const unsigned char *ident = data;
	GElf_Ehdr header;
	bool cut = false;
	size_t n = 0;
	Elf *elf;

	if (size < sizeof(Elf64_Ehdr) || memcmp(ident, ELFMAG, SELFMAG) ||
	    ident[EI_CLASS] != ELFCLASS64 || ident[EI_DATA] != ELFDATA2LSB)
		return false;
	elf_version(EV_CURRENT);
	elf = elf_memory((char *)data, size);
	/* libelf sees no sections if it cannot read all their headers. */
	if (elf && gelf_getehdr(elf, &header) && !elf_getshdrnum(elf, &n))
		cut = header.e_shnum && !n;
	elf_end(elf);
	return cut;
}
