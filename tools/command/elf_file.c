/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/command/elf_file.h"

#include <errno.h>
#include <gelf.h>
#include <stdlib.h>
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

static int compare_offset(const void *a, const void *b)
{
	const struct elf_part *x = a, *y = b;

	return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* List the sections of @elf that have bytes in the file; returns how many. */
static size_t list_sections(Elf *elf, size_t size, struct elf_part *sections)
{
	Elf_Scn *section = NULL;
	GElf_Shdr header;
	size_t n = 0;

	while ((section = elf_nextscn(elf, section)))
		if (gelf_getshdr(section, &header) && header.sh_type != SHT_NOBITS &&
		    header.sh_offset < size && header.sh_size <= size - header.sh_offset)
			sections[n++] = (struct elf_part){header.sh_offset, header.sh_size};
	qsort(sections, n, sizeof(*sections), compare_offset);
	return n;
}

/* Add [@start, @end) to @parts, if that is not empty; returns how many there are then. */
static int add_part(struct elf_part *parts, int n, size_t start, size_t end)
{
	if (start < end)
		parts[n++] = (struct elf_part){start, end - start};
	return n;
}

int elf_file_parts(const void *data, size_t size, struct elf_part **parts)
{
	struct elf_part *sections, *all;
	size_t most = 0, nsections = 0, pos = 0;
	Elf *elf;
	int n = 0;

	elf_version(EV_CURRENT);
	elf = elf_memory((char *)data, size);
	if (elf && elf_kind(elf) == ELF_K_ELF)
		elf_getshdrnum(elf, &most);
	sections = calloc(most + 1, sizeof(*sections));
	all = calloc(2 * most + 1, sizeof(*all));
	if (!sections || !all) {
		elf_end(elf);
		free(sections);
		free(all);
		return -ENOMEM;
	}
	if (most)
		nsections = list_sections(elf, size, sections);
	for (size_t i = 0; i < nsections; i++) {
		size_t end = sections[i].offset + sections[i].size;

		n = add_part(all, n, pos, sections[i].offset);
		pos = pos > sections[i].offset ? pos : sections[i].offset;
		n = add_part(all, n, pos, end);
		pos = pos > end ? pos : end;
	}
	n = add_part(all, n, pos, size);
	elf_end(elf);
	free(sections);
	*parts = all;
	return n;
}

bool elf_file_is_cut(const void *data, size_t size)
{
	GElf_Ehdr header;
	bool cut = false;
	size_t n = 0;
	Elf *elf;

	if (size < sizeof(Elf64_Ehdr) || memcmp(data, ELFMAG, SELFMAG))
		return false;
	elf_version(EV_CURRENT);
	elf = elf_memory((char *)data, size);
	/* libelf sees no sections if it cannot read all their headers. */
	if (elf && gelf_getehdr(elf, &header) && !elf_getshdrnum(elf, &n))
		cut = header.e_shnum && !n;
	elf_end(elf);
	return cut;
}
