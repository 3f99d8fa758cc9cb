/* SPDX-License-Identifier: Apache-2.0 */
#include "common/find/find_exports.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* How much of a table is read; those of a driver have a hundredth of it. */
#define MAX_TABLE (16U << 20)

static bool read_at(int fd, uint64_t offset, void *buf, size_t size)
{
	return offset <= INT64_MAX && pread(fd, buf, size, (off_t)offset) == (ssize_t)size;
}

/* So many bytes of the file, and a null behind them. The caller frees them; NULL: errno says why. */
static void *read_part(int fd, uint64_t offset, uint64_t size)
{
	char *bytes;

	if (size > MAX_TABLE) {
		errno = EBADMSG;
		return NULL;
	}
	bytes = calloc(1, size + 1);
	if (bytes && !read_at(fd, offset, bytes, size)) {
		free(bytes);
		errno = EBADMSG;
		return NULL;
	}
	return bytes;
}

struct tables {
	Elf64_Sym *symbols;
	size_t count;
	char *names;
	size_t size; /* bytes of @names */
};

/* Read the symbols that the library defines or uses. The caller frees both tables. 0, or a negative errno. */
static int read_tables(int fd, struct tables *tables)
{
	const Elf64_Shdr *table, *strings;
	Elf64_Shdr *sections;
	Elf64_Ehdr header;
	int error = 0;

	if (!read_at(fd, 0, &header, sizeof(header)) || memcmp(header.e_ident, ELFMAG, SELFMAG) ||
	    header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_shentsize != sizeof(*sections))
		return -EBADMSG;
	sections = read_part(fd, header.e_shoff, header.e_shnum * sizeof(*sections));
	if (!sections)
		return -errno;
	for (table = sections; table < sections + header.e_shnum; table++)
		if (table->sh_type == SHT_DYNSYM && table->sh_link < header.e_shnum)
			break;
	if (table == sections + header.e_shnum) {
		free(sections);
		return -EBADMSG;
	}
	strings = sections + table->sh_link;
	tables->count = table->sh_size / sizeof(*tables->symbols);
	tables->size = strings->sh_size;
	tables->symbols = read_part(fd, table->sh_offset, table->sh_size);
	if (tables->symbols)
		tables->names = read_part(fd, strings->sh_offset, strings->sh_size);
	if (!tables->names)
		error = -errno;
	free(sections);
	return error;
}

int find_exports(const char *path, void (*visit)(const char *name, void *arg), void *arg)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), error;
	struct tables t = {0};

	if (fd < 0)
		return -ENOENT;
	error = read_tables(fd, &t);
	close(fd);
	for (size_t i = 0; !error && i < t.count; i++)
		if (t.symbols[i].st_shndx != SHN_UNDEF && t.symbols[i].st_name < t.size)
			visit(t.names + t.symbols[i].st_name, arg);
	free(t.names);
	free(t.symbols);
	return error;
}
