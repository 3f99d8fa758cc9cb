/* SPDX-License-Identifier: Apache-2.0 */
#include "kparams/elf.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define MACHINE_CUDA 190

int kp_elf_header(const void *data, size_t size, Elf64_Ehdr *header, struct kp_error *err)
{
	struct kp_reader r = kp_reader(data, size);

	kp_read(&r, header, sizeof(*header));
	if (r.failed || memcmp(header->e_ident, ELFMAG, SELFMAG))
		return kp_fail(err, -EBADMSG, 0, "no ELF header");
	if (header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_ident[EI_DATA] != ELFDATA2LSB ||
	    header->e_machine != MACHINE_CUDA)
		return kp_fail(err, -ENOTSUP, 0, "an ELF file for machine %u, not GPU code",
			       header->e_machine);
	return 0;
}

Elf64_Shdr kp_elf_section(const struct kp_elf *elf, size_t i)
{
	Elf64_Shdr header;

	memcpy(&header, elf->data + elf->sections + i * sizeof(header), sizeof(header));
	return header;
}

/* A number of sections that has no room in the header is the size of section 0. */
int kp_elf_open(struct kp_elf *elf, const void *data, size_t size, struct kp_error *err)
{
	Elf64_Ehdr header;
	int ret = kp_elf_header(data, size, &header, err);

	if (ret)
		return ret;
	*elf = (struct kp_elf){
		.data = data,
		.size = size,
		.sections = header.e_shoff,
		.nsections = header.e_shnum,
		.err = err,
	};
	if (header.e_shoff && header.e_shoff <= size - sizeof(Elf64_Shdr) && !header.e_shnum)
		elf->nsections = kp_elf_section(elf, 0).sh_size;
	if (header.e_shoff > size ||
	    elf->nsections > (size - header.e_shoff) / sizeof(Elf64_Shdr) ||
	    (elf->nsections && header.e_shentsize != sizeof(Elf64_Shdr)))
		return kp_fail(err, -EBADMSG, offsetof(Elf64_Ehdr, e_shoff),
			       "%zu section headers at 0x%" PRIx64 " pass the image's end",
			       elf->nsections, header.e_shoff);
	return 0;
}

int kp_elf_open_section(const struct kp_elf *elf, size_t i, struct kp_reader *r)
{
	Elf64_Shdr header = kp_elf_section(elf, i);

	if (header.sh_type == SHT_NOBITS)
		header.sh_offset = header.sh_size = 0;
	if (header.sh_offset > elf->size || header.sh_size > elf->size - header.sh_offset)
		return kp_fail(elf->err, -EBADMSG, header.sh_offset,
			       "section %zu of 0x%" PRIx64 " bytes passes the image's end", i,
			       header.sh_size);
	*r = kp_reader(elf->data + header.sh_offset, header.sh_size);
	return 0;
}

/* Open the table of large section indices of the symbols; an empty one if there is none. */
static int open_large_indices(const struct kp_elf *elf, size_t table, struct kp_reader *r)
{
	for (size_t i = 1; i < elf->nsections; i++) {
		Elf64_Shdr header = kp_elf_section(elf, i);

		if (header.sh_type == SHT_SYMTAB_SHNDX && header.sh_link == table)
			return kp_elf_open_section(elf, i, r);
	}
	*r = kp_reader(NULL, 0);
	return 0;
}

int kp_elf_open_symbols(const struct kp_elf *elf, size_t table, struct kp_elf_symbols *symbols)
{
	Elf64_Shdr header = kp_elf_section(elf, table);
	int ret;

	if (header.sh_entsize != sizeof(Elf64_Sym) || header.sh_link >= elf->nsections)
		return kp_fail(elf->err, -EBADMSG, header.sh_offset,
			       "symbols of %" PRIu64 " bytes, with names in section %u",
			       header.sh_entsize, header.sh_link);
	ret = kp_elf_open_section(elf, table, &symbols->symbols);
	if (!ret)
		ret = kp_elf_open_section(elf, header.sh_link, &symbols->strings);
	if (!ret)
		ret = open_large_indices(elf, table, &symbols->large);
	return ret;
}

bool kp_elf_next_symbol(struct kp_elf_symbols *symbols, struct kp_elf_symbol *symbol)
{
	uint32_t index = kp_read_u32(&symbols->large);

	if (kp_left(&symbols->symbols) < sizeof(symbol->raw))
		return false;
	kp_read(&symbols->symbols, &symbol->raw, sizeof(symbol->raw));
	symbol->section = symbol->raw.st_shndx == SHN_XINDEX ? index : symbol->raw.st_shndx;
	return true;
}

const char *kp_elf_symbol_name(const struct kp_elf_symbols *symbols,
			       const struct kp_elf_symbol *symbol)
{
	const struct kp_reader *strings = &symbols->strings;
	size_t offset = symbol->raw.st_name;
	const char *text = (const char *)strings->data + offset;

	if (offset >= strings->end || !*text || !memchr(text, 0, strings->end - offset))
		return NULL;
	return text;
}
