/* SPDX-License-Identifier: Apache-2.0 */
#include "common/find/find_loaded.h"

#include <link.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static void read_object(const struct dl_phdr_info *info, const char *soname,
			struct find_object *obj)
{
	const ElfW(Dyn) *dyn = NULL, *d;
	const char *strings = NULL;
	uintptr_t addr;

	*obj = (struct find_object){.path = info->dlpi_name};
	for (size_t i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
			dyn = (const void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
	for (d = dyn; d && d->d_tag != DT_NULL; d++) {
		if (d->d_tag != DT_STRTAB)
			continue;
		/*
		 * The loader relocates this in place, except in objects that it cannot write
		 * (vDSO).
		 */
		addr = d->d_un.d_ptr < info->dlpi_addr ? info->dlpi_addr : 0;
		strings = (const char *)(addr + d->d_un.d_ptr);
	}
	for (d = dyn; strings && d->d_tag != DT_NULL; d++) {
		const char *text = strings + d->d_un.d_val;

		if (d->d_tag == DT_SONAME)
			obj->soname = text;
		else if (d->d_tag == DT_RPATH)
			obj->rpath = text;
		else if (d->d_tag == DT_RUNPATH)
			obj->runpath = text;
		else if (d->d_tag == DT_NEEDED && !strcmp(text, soname))
			obj->needs = true;
	}
}

struct visit {
	const char *soname;
	void (*visit)(const struct find_object *object, void *arg);
	void *arg;
};

static int visit_object(struct dl_phdr_info *info, size_t size, void *arg)
{
	const struct visit *v = arg;
	struct find_object object;

	(void)size;
	read_object(info, v->soname, &object);
	v->visit(&object, v->arg);
	return 0;
}

void find_loaded(const char *soname, void (*visit)(const struct find_object *object, void *arg),
		 void *arg)
{
	struct visit v = {soname, visit, arg};

	dl_iterate_phdr(visit_object, &v);
}
