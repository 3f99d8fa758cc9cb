/* SPDX-License-Identifier: Apache-2.0 */
#include "wrapper/kernels/source.h"
#include "kparams/kparams.h"

#include <fcntl.h>
#include <link.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOG_PREFIX "images: "
#include "common/log.h"

#define BEGINNING 64

/* A container, cubin or PTX text. */
struct source_part {
	const void *data;
	size_t size;
	void *copy;             /* @data, if it is ours; NULL: the loader mapped it */
	char begins[BEGINNING]; /* of a mapped container */
};

static void parts_free(struct source *source)
{
	for (size_t i = 0; i < source->nparts; i++)
		free(source->parts[i].copy);
	free(source->parts);
	source->parts = NULL;
	source->nparts = 0;
}

void source_close(struct source *source)
{
	kp_fatbin_close(source->fatbin);
	parts_free(source);
}

struct search {
	uintptr_t start, end;
	bool found;
};

static int search_object(struct dl_phdr_info *object, size_t size, void *arg)
{
	struct search *search = arg;

	(void)size;
	for (int i = 0; i < object->dlpi_phnum && !search->found; i++) {
		const ElfW(Phdr) *part = &object->dlpi_phdr[i];
		uintptr_t start = object->dlpi_addr + part->p_vaddr;

		search->found = part->p_type == PT_LOAD && search->start >= start &&
				search->end <= start + part->p_memsz && !(part->p_flags & PF_W);
	}
	return search->found;
}

/*
 * True if the @size bytes at @data belong to the program or a library, and cannot be written.
 * dladdr() would take the loader's lock inside the gate.
 */
static bool is_mapped(const void *data, size_t size)
{
	struct search search = {(uintptr_t)data, (uintptr_t)data + size, false};

	dl_iterate_phdr(search_object, &search);
	return search.found;
}

static size_t beginning(const struct source_part *part)
{
	return part->size < BEGINNING ? part->size : BEGINNING;
}

/* False: a library was unloaded whose container is used in its place. */
static bool is_there(const struct source *source)
{
	for (size_t i = 0; i < source->nparts; i++) {
		const struct source_part *part = &source->parts[i];

		if (!part->copy && (!is_mapped(part->data, beginning(part)) ||
				    memcmp(part->data, part->begins, beginning(part))))
			return false;
	}
	return true;
}

static struct source_part *new_part(struct source *source)
{
	struct source_part *grown = reallocarray(source->parts, source->nparts + 1, sizeof(*grown));

	if (!grown)
		return NULL;
	source->parts = grown;
	memset(&grown[source->nparts], 0, sizeof(*grown));
	return &grown[source->nparts++];
}

/* Add the container at @data to @source, as a copy if it may change or go away. */
static bool add_part(struct source *source, const void *data)
{
	struct kp_error err = {0};
	struct source_part *part;
	size_t size;

	if (kp_memory_size(data, &size, &err)) {
		pr_warn("an image that cannot be read: %s", err.text);
		return false;
	}
	part = new_part(source);
	if (!part)
		return false;
	part->data = data;
	part->size = size;
	if (is_mapped(data, size)) {
		memcpy(part->begins, data, beginning(part));
		return true;
	}
	part->copy = malloc(size);
	if (part->copy)
		part->data = memcpy(part->copy, data, size);
	return part->copy;
}

void source_set_data(struct source *source, const void *data)
{
	const void *container = data;
	bool ok = true;

	if (!kp_is_wrapper(data))
		ok = add_part(source, data);
	else if (!kp_wrapper_container(data, 0))
		pr_warn("a wrapper of a version that is not known");
	else
		for (size_t i = 0; ok && (container = kp_wrapper_container(data, i)); i++)
			ok = add_part(source, container);
	if (!ok)
		parts_free(source);
}

void source_set_file(struct source *source, const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct source_part *part;
	struct stat st;
	ssize_t n = 0;

	if (fd < 0)
		return;
	part = !fstat(fd, &st) && st.st_size > 0 ? new_part(source) : NULL;
	if (part)
		part->data = part->copy = malloc(st.st_size);
	if (part && part->copy)
		n = read(fd, part->copy, st.st_size);
	if (n > 0)
		part->size = n;
	else
		parts_free(source);
	close(fd);
}

/* Open all parts of @source as one fatbin. */
static int open_parts(struct source *source, struct kp_error *err)
{
	const struct source_part *part = source->parts;
	int ret = kp_fatbin_open(part->data, part->size, &source->fatbin, err);

	for (size_t i = 1; !ret && i < source->nparts; i++)
		ret = kp_fatbin_add(source->fatbin, part[i].data, part[i].size, err);
	if (ret) {
		kp_fatbin_close(source->fatbin);
		source->fatbin = NULL;
	}
	return ret;
}

const struct kp_kernel *source_find(struct source *source, const char *name, uint32_t arch)
{
	const struct kp_kernel *kernel = NULL;
	struct kp_error err = {0};
	int ret = 0;

	if (!is_there(source)) {
		pr_warn("%s: the library that had its image was unloaded", name);
		return NULL;
	}
	if (!source->opened && source->nparts)
		ret = open_parts(source, &err);
	source->opened = true;
	if (!ret && source->fatbin)
		ret = kp_fatbin_find(source->fatbin, arch, name, &kernel, NULL, &err);
	if (ret)
		pr_warn("%s: %s", err.text, name);
	return kernel;
}
