/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CUDAW_WRAPPER_SOURCE_H
#define CUDAW_WRAPPER_SOURCE_H
/*
 * source: the GPU code that one module or library was loaded from. A container that the loader
 * mapped, and that cannot be written, is used in its place, as long as its library is loaded.
 * Others are copied, since the driver lets the program free them, or use the place for others,
 * after the load. Until a kernel is looked up, only the beginning of a mapped container is read.
 *
 * No lock of its own: the caller serialises the functions for one source.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kp_fatbin;
struct kp_kernel;
struct source_part;

/* Zeroed: the code is not known. */
struct source {
	struct source_part *parts; /* a wrapper has several */
	size_t nparts;
	bool opened;
	struct kp_fatbin *fatbin; /* NULL: it cannot be opened */
};

/* @source is the fatbin, its wrapper, the cubin or the PTX at @data, or in the file @path. */
void source_set_data(struct source *source, const void *data);
void source_set_file(struct source *source, const char *path);

/* The kernel @name for devices of @arch, valid until source_close(). NULL: it is not known. */
const struct kp_kernel *source_find(struct source *source, const char *name, uint32_t arch);

void source_close(struct source *source);

#endif
