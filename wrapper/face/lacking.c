/* SPDX-License-Identifier: Apache-2.0 */
#include "wrapper/face/lacking.h"
#include "common/find/find.h"
#include "common/find/find_exports.h"
#include "libcuda_names.h"
#include "wrapper/face/tramp.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const char *const names[] = {LIBCUDA_EXPORTS(TRAMP_NAME)};
#define NEXPORTS (sizeof(names) / sizeof(names[0]))

/* The loader's tables of our own library. */
struct tables {
	const uint32_t *hash; /* DT_GNU_HASH */
	Elf64_Sym *symbols;
	const char *strings;
	Elf64_Addr base;
};

static bool find_tables(struct tables *tables)
{
	struct link_map *map;
	Dl_info info;

	*tables = (struct tables){0};
	if (!dladdr1(libcuda_targets, &info, (void **)&map, RTLD_DL_LINKMAP))
		return false;
	tables->base = map->l_addr;
	/* The loader has relocated the addresses in place. */
	for (const Elf64_Dyn *d = map->l_ld; d->d_tag != DT_NULL; d++) {
		if (d->d_tag == DT_GNU_HASH)
			tables->hash = (const uint32_t *)d->d_un.d_ptr;
		else if (d->d_tag == DT_SYMTAB)
			tables->symbols = (Elf64_Sym *)d->d_un.d_ptr;
		else if (d->d_tag == DT_STRTAB)
			tables->strings = (const char *)d->d_un.d_ptr;
	}
	return tables->hash && tables->symbols && tables->strings;
}

/*
 * The symbol called @name, or NULL. DT_GNU_HASH is four words (the number of buckets, the index of the first symbol
 * that it has, the number of words of 8 bytes in a filter, a shift), the filter, the buckets (the index of their
 * first symbol, or 0), and a hash for each symbol, odd at the end of a bucket.
 */
static Elf64_Sym *find_symbol(const struct tables *tables, const char *name)
{
	const uint32_t *buckets = tables->hash + 4 + 2 * tables->hash[2];
	const uint32_t *hashes = buckets + tables->hash[0];
	uint32_t hash = 5381, i;

	for (const char *c = name; *c; c++)
		hash = 33 * hash + (unsigned char)*c;
	i = buckets[hash % tables->hash[0]];
	for (; i; i = hashes[i - tables->hash[1]] & 1 ? 0 : i + 1)
		if (!strcmp(tables->strings + tables->symbols[i].st_name, name))
			return &tables->symbols[i];
	return NULL;
}

/* Hide the exports of @lacks, and no others. */
static void hide(const bool lacks[NEXPORTS])
{
	static Elf64_Sym *symbols[NEXPORTS]; /* those to change, or NULL */
	static Elf64_Addr values[NEXPORTS];
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = UINTPTR_MAX, end = 0;
	struct tables tables;

	if (!find_tables(&tables))
		return;
	for (size_t i = 0; i < NEXPORTS; i++) {
		Elf64_Sym *symbol = symbols[i] = find_symbol(&tables, names[i]);

		if (!symbol)
			return; /* linked into a program, which does not export them */
		values[i] = lacks[i] ? 0 : (Elf64_Addr)libcuda_exports[i] - tables.base;
		if (symbol->st_value == values[i]) {
			symbols[i] = NULL;
			continue;
		}
		begin = (uintptr_t)symbol < begin ? (uintptr_t)symbol : begin;
		end = (uintptr_t)(symbol + 1) > end ? (uintptr_t)(symbol + 1) : end;
	}
	begin &= -page;
	/* The pages hold no code: LINK_FACE in the Makefile. */
	if (!end || mprotect((void *)begin, end - begin, PROT_READ | PROT_WRITE))
		return;
	for (size_t i = 0; i < NEXPORTS; i++)
		if (symbols[i])
			__atomic_store_n(&symbols[i]->st_value, values[i], __ATOMIC_RELEASE);
	mprotect((void *)begin, end - begin, PROT_READ);
}

static int compare(const void *name, const void *other)
{
	return strcmp(name, *(const char *const *)other);
}

/* The list is in order: gen_exports.py checks it. NULL: the name is not in the list. */
static const char *const *find_name(const char *name)
{
	return bsearch(name, names, NEXPORTS, sizeof(names[0]), compare);
}

static void note_export(const char *name, void *lacks)
{
	const char *const *found = find_name(name);

	if (found)
		((bool *)lacks)[found - names] = false;
}

static bool known; /* of the driver itself: a constructor before ours made the first call */

void lacking_by_file(void)
{
	bool lacks[NEXPORTS];
	char path[PATH_MAX];

	memset(lacks, true, sizeof(lacks));
	if (known || find_real_driver(path, sizeof(path)) || find_exports(path, note_export, lacks))
		return;
	/* A driver of two files, as that of WSL may be, has its functions in the other one. */
	if (!lacks[find_name("cuInit") - names])
		hide(lacks);
}

void lacking_by_driver(void *const found[])
{
	bool lacks[NEXPORTS];

	for (size_t i = 0; i < NEXPORTS; i++)
		lacks[i] = !found[i];
	hide(lacks);
	known = true;
}
