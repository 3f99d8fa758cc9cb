/* SPDX-License-Identifier: Apache-2.0 */
#include "kparams/internal.h"

#include <elf.h>
#include <errno.h>
#include <string.h>

static uint64_t larger(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* The end of the last header, section or segment of an ELF file. */
static uint64_t elf_extent(const uint8_t *data)
{
	uint64_t end, nsections;
	Elf64_Ehdr header;
	Elf64_Shdr section;
	Elf64_Phdr segment;

	memcpy(&header, data, sizeof(header));
	end = sizeof(header);
	nsections = header.e_shnum;
	/* A count that does not fit into the header is the size of section 0. */
	if (header.e_shoff && !nsections) {
		memcpy(&section, data + header.e_shoff, sizeof(section));
		nsections = section.sh_size;
	}
	for (uint64_t i = 0; header.e_shoff && i < nsections; i++) {
		uint64_t at = header.e_shoff + i * sizeof(section);

		memcpy(&section, data + at, sizeof(section));
		end = larger(end, at + sizeof(section));
		if (section.sh_type != SHT_NOBITS)
			end = larger(end, section.sh_offset + section.sh_size);
	}
	for (uint64_t i = 0; i < header.e_phnum; i++) {
		uint64_t at = header.e_phoff + i * sizeof(segment);

		memcpy(&segment, data + at, sizeof(segment));
		end = larger(end, at + sizeof(segment));
		end = larger(end, segment.p_offset + segment.p_filesz);
	}
	return end;
}

int kp_memory_size(const void *data, size_t *size, struct kp_error *err)
{
	const uint8_t *bytes = data;
	struct kp_image_info info;
	uint16_t header_size;
	uint64_t rest;
	int ret;

	if (kp_is_container(data, 4)) {
		memcpy(&header_size, bytes + 6, sizeof(header_size));
		memcpy(&rest, bytes + 8, sizeof(rest));
		*size = header_size + rest;
		return 0;
	}
	if (kp_is_elf(data, 4)) {
		ret = kp_cubin_info(data, sizeof(Elf64_Ehdr), &info, err);
		if (!ret)
			*size = elf_extent(data);
		return ret;
	}
	ret = kp_ptx_info(data, strlen(data), &info, err);
	if (!ret)
		*size = strlen(data) + 1;
	return ret;
}
